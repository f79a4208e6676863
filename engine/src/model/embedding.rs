//! [`Embedding`]: the vectors of the tokens, in the type of a safetensors or GGUF file, otherwise in float32.

use std::borrow::Cow;

use candle_core::CpuStorage;
use candle_core::quantized::GgmlDType;
use lumos_kernels::AlignedBuffer;

use crate::error::LoadError;
use crate::load::tensors::EMBEDDING;
use crate::load::weights::Weights;

/// One vector for each token.
pub(crate) struct Embedding {
    dtype: GgmlDType,
    /// Numbers or blocks, vector after vector.
    bytes: AlignedBuffer<u8>,
    /// Numbers in a vector.
    width: usize,
}

impl Embedding {
    /// Reads the vectors of `tokens` tokens.
    pub(crate) fn load(weights: &Weights, tokens: usize, width: usize) -> Result<Self, LoadError> {
        let shape = [tokens, width];
        match weights.mapped(EMBEDDING, &shape)? {
            Some((dtype, bytes)) => Ok(Self::new(dtype, bytes, width)),
            None => {
                let values = weights.values(EMBEDDING, &shape)?;
                Ok(Self::new(GgmlDType::F32, bytemuck::cast_slice(&values), width))
            }
        }
    }

    /// Size of the vectors in memory, in bytes.
    pub(crate) fn bytes(weights: &Weights, tokens: usize, width: usize) -> Result<usize, LoadError> {
        let mapped = weights.mapped(EMBEDDING, &[tokens, width])?;
        Ok(mapped.map_or(tokens * width * size_of::<f32>(), |(_, bytes)| bytes.len()))
    }

    fn new(dtype: GgmlDType, vectors: &[u8], width: usize) -> Self {
        let mut bytes = AlignedBuffer::zeros(vectors.len());
        bytes.copy_from_slice(vectors);
        Self { dtype, bytes, width }
    }

    /// Writes the vector of a token.
    pub(crate) fn read(&self, token: u32, vector: &mut [f32]) {
        let size = self.width / self.dtype.block_size() * self.dtype.type_size();
        let stored = &self.bytes[token as usize * size..][..size];
        let values = self.dtype.from_data(Cow::Borrowed(stored)).dequantize(self.width);
        let Ok(CpuStorage::F32(values)) = values else { unreachable!("blocks become float32 numbers") };
        vector.copy_from_slice(&values);
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::QTensor;
    use candle_core::{Device, Tensor};

    use super::*;

    #[test]
    fn vectors_are_those_of_the_file_in_every_type() {
        let (tokens, width) = (3, 512);
        let values: Vec<f32> = (0..tokens * width).map(|i| (i as f32 * 0.37).sin()).collect();
        let values = Tensor::from_vec(values, (tokens, width), &Device::Cpu).unwrap();
        for dtype in [
            GgmlDType::F32,
            GgmlDType::F16,
            GgmlDType::BF16,
            GgmlDType::Q4_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q4K,
            GgmlDType::Q6K,
        ] {
            let stored = QTensor::quantize(&values, dtype).unwrap();
            let expected = stored.dequantize(&Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
            let embedding = Embedding::new(dtype, &stored.data().unwrap(), width);
            let mut vector = vec![0.0; width];
            for (token, expected) in expected.iter().enumerate() {
                embedding.read(token as u32, &mut vector);
                assert_eq!(&vector, expected, "{dtype:?}");
            }
        }
    }
}
