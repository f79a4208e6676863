//! [`Embedding`]: the vectors of the tokens, as numbers of the type that the file stores, which is exact.

use half::{bf16, f16};
use lumos_kernels::{AlignedBuffer, DType};

use crate::error::LoadError;
use crate::load::tensors::EMBEDDING;
use crate::load::weights::Weights;

/// One vector for each token.
pub(crate) struct Embedding {
    dtype: DType,
    /// Little-endian numbers, vector after vector.
    bytes: AlignedBuffer<u8>,
    /// Numbers in a vector.
    width: usize,
}

impl Embedding {
    /// Reads the vectors of `tokens` tokens.
    pub(crate) fn load(weights: &Weights, tokens: usize, width: usize) -> Result<Self, LoadError> {
        let shape = [tokens, width];
        if let Some((dtype, bytes)) = weights.stored_bytes(EMBEDDING, &shape)? {
            return Ok(Self::new(dtype, bytes, width));
        }
        Ok(Self::new(DType::F32, bytemuck::cast_slice(&weights.values(EMBEDDING, &shape)?), width))
    }

    fn new(dtype: DType, numbers: &[u8], width: usize) -> Self {
        let mut bytes = AlignedBuffer::zeros(numbers.len());
        bytes.copy_from_slice(numbers);
        Self { dtype, bytes, width }
    }

    /// Writes the vector of a token.
    pub(crate) fn read(&self, token: u32, vector: &mut [f32]) {
        let size = self.width * self.dtype.width();
        let bytes = &self.bytes[token as usize * size..][..size];
        match self.dtype {
            DType::F32 => widen(bytes, vector, f32::from_le_bytes),
            DType::Bf16 => widen(bytes, vector, |number| bf16::from_le_bytes(number).to_f32()),
            DType::F16 => widen(bytes, vector, |number| f16::from_le_bytes(number).to_f32()),
        }
    }
}

fn widen<const N: usize>(bytes: &[u8], vector: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    for (value, bytes) in vector.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = number(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_those_of_the_file_in_every_type() {
        let values = [1.5f32, -2.0, 0.25, 3.0, -0.5, 8.0];
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let bytes = values.iter().flat_map(|value| match dtype {
                DType::F32 => value.to_le_bytes().to_vec(),
                DType::Bf16 => bf16::from_f32(*value).to_le_bytes().to_vec(),
                DType::F16 => f16::from_f32(*value).to_le_bytes().to_vec(),
            });
            let embedding = Embedding::new(dtype, &bytes.collect::<Vec<u8>>(), 2);
            let mut vector = [0.0; 2];
            for (token, expected) in values.chunks(2).enumerate() {
                embedding.read(token as u32, &mut vector);
                assert_eq!(vector, expected, "{dtype}");
            }
        }
    }
}
