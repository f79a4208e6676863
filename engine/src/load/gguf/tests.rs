//! Values read equal the values written, for every type, and corrupt files are detected.

use std::path::{Path, PathBuf};

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType as CandleType, Device, Tensor};
use lumos_kernels::QuantizedFormat;
use proptest::prelude::*;

use super::open;
use crate::error::LoadError;
use crate::fixtures::Shape;
use crate::fixtures::gguf::GgufModel;
use crate::load::weights::{QuantizedMatrix, Weights, quantized_format, to_f32};
use crate::model::Embedding;

const KINDS: [GgmlDType; 12] = [
    GgmlDType::F32,
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

fn shape() -> Shape {
    Shape { hidden: 256, intermediate: 512, heads: 8, key_value_heads: 4, ..Shape::tiny() }
}

fn written(model: &GgufModel) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    model.write(&path);
    (folder, path)
}

fn weights(path: &Path) -> Weights {
    let (_, _, tensors) = open(path).unwrap();
    Weights::of_gguf(tensors, path)
}

fn widened(matrix: &QuantizedMatrix<'_>) -> Vec<f32> {
    let dtype = match matrix.format {
        QuantizedFormat::Q8_0 => GgmlDType::Q8_0,
        QuantizedFormat::Q4K => GgmlDType::Q4K,
        QuantizedFormat::Q6K => GgmlDType::Q6K,
    };
    let storage = QStorage::from_data(matrix.blocks.clone(), &Device::Cpu, dtype).unwrap();
    let rows =
        matrix.blocks.len() / matrix.format.block_bytes() / (matrix.columns / matrix.format.block_values());
    let tensor = QTensor::new(storage, (rows, matrix.columns)).unwrap();
    to_f32(&tensor.dequantize(&Device::Cpu).unwrap()).unwrap()
}

/// Every tensor in Hugging Face's order of rows; rows are quantized one by one, so that order and type do not
/// interfere.
#[test]
fn tensors_are_those_of_the_folder_in_every_type() {
    for dtype in KINDS {
        let (_folder, path) = written(&GgufModel::new(&shape(), 3, dtype));
        let weights = weights(&path);
        for (name, dims, values) in shape().tensors(3) {
            let original = Tensor::from_vec(values, dims.clone(), &Device::Cpu).unwrap();
            let stored = if dims.len() > 1 { dtype } else { GgmlDType::F32 };
            let expected = QTensor::quantize(&original, stored).unwrap().dequantize(&Device::Cpu).unwrap();
            let found = weights.get(&name, &dims).unwrap();
            let float = match stored {
                GgmlDType::F16 => CandleType::F16,
                GgmlDType::BF16 => CandleType::BF16,
                _ => CandleType::F32,
            };
            assert_eq!(found.dtype(), float, "{name} {dtype:?}");
            assert_eq!(to_f32(&found).unwrap(), to_f32(&expected).unwrap(), "{name} {dtype:?}");
            let &[rows, columns] = &dims[..] else { continue };
            let kept = weights.quantized(&name, [rows, columns]).unwrap();
            assert_eq!(kept.as_ref().map(|kept| kept.format), quantized_format(dtype), "{name} {dtype:?}");
            if let Some(kept) = kept {
                assert_eq!(kept.columns, columns);
                assert_eq!(widened(&kept), to_f32(&expected).unwrap(), "{name} {dtype:?}");
            }
            let error = weights.quantized(&name, [rows + 1, columns]).unwrap_err();
            assert!(matches!(error, LoadError::WrongShape { .. }), "{error}");
        }
    }
}

#[test]
fn types_are_named_by_their_share() {
    let mut model = GgufModel::new(&shape(), 3, GgmlDType::Q4K);
    let quantization = |model: &GgufModel| {
        let (_folder, path) = written(model);
        weights(&path).gguf().unwrap().quantization()
    };
    assert_eq!(quantization(&model).as_deref(), Some("Q4_K"));
    let (name, tensor) = model.tensors.iter_mut().find(|(name, _)| name == "output.weight").unwrap();
    assert_eq!(name, "output.weight");
    let values = tensor.dequantize(&Device::Cpu).unwrap();
    *tensor = QTensor::quantize(&values, GgmlDType::Q6K).unwrap();
    assert_eq!(quantization(&model).as_deref(), Some("Q4_K + Q6_K"));
    assert_eq!(quantization(&GgufModel::new(&shape(), 3, GgmlDType::F16)), None);
}

#[test]
fn kept_blocks_count_as_they_are_stored() {
    let bytes = |dtype, unread| {
        let (_folder, path) = written(&GgufModel::new(&shape(), 3, dtype));
        let bytes = weights(&path).gguf().unwrap().quantized_bytes(unread, 2);
        bytes.map(|(read, all)| {
            assert_eq!(read, all);
            all
        })
    };
    let shape = shape();
    let matrices = shape.tensors(3).into_iter().filter(|(_, dims, _)| dims.len() == 2);
    let values: usize = matrices.map(|(_, dims, _)| dims[0] * dims[1]).sum();
    let embedding = shape.vocabulary * shape.hidden;
    assert_eq!(bytes(GgmlDType::F16, None), None);
    assert_eq!(bytes(GgmlDType::Q8_0, None), Some(values / 32 * 34));
    let unread = Some("model.embed_tokens.weight");
    assert_eq!(bytes(GgmlDType::Q4K, unread), Some((values - embedding) / 256 * 144));
    // Widened to float16.
    assert_eq!(bytes(GgmlDType::Q5K, unread), Some((values - embedding) * 2));
}

/// Reads as much as possible of the file. Corrupt input must not cause a panic or an access out of bounds.
fn outcome(bytes: &[u8]) -> Result<(), LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let (_, _, tensors) = open(&path)?;
    let weights = Weights::of_gguf(tensors, &path);
    for (name, dims, _) in Shape::tiny().tensors(1) {
        weights.get(&name, &dims)?;
    }
    let Shape { vocabulary, hidden, .. } = Shape::tiny();
    let embedding = Embedding::load(&weights, vocabulary, hidden)?;
    embedding.read(vocabulary as u32 - 1, &mut vec![0.0; hidden]);
    Ok(())
}

fn good() -> Vec<u8> {
    let (_folder, path) = written(&GgufModel::new(&Shape::tiny(), 1, GgmlDType::F16));
    std::fs::read(path).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_file_that_ends_early_is_damaged(part in 0.0..1.0f64) {
        let bytes = good();
        // The last tensor is padded.
        let length = ((bytes.len() - 32) as f64 * part) as usize;
        let error = outcome(&bytes[..length]).unwrap_err();
        prop_assert!(matches!(error, LoadError::InvalidWeights { .. }), "{}", error);
        prop_assert!(error.to_string().contains("model.gguf"), "{}", error);
    }

    #[test]
    fn flipped_bits_never_panic(flips in prop::collection::vec((0.0..1.0f64, 0..8u32), 1..4), early in any::<bool>()) {
        let mut bytes = good();
        // Most of the relevant fields are before the tensors.
        let length = if early { 2_000 } else { bytes.len() };
        for (place, bit) in flips {
            bytes[(length as f64 * place) as usize] ^= 1 << bit;
        }
        if let Err(error) = outcome(&bytes) {
            prop_assert!(error.to_string().contains("model.gguf"), "{}", error);
        }
    }
}

#[test]
fn an_alignment_of_nothing_is_damage() {
    use candle_core::quantized::gguf_file::Value;
    for value in [Value::U8(0), Value::I16(0), Value::U32(0)] {
        let mut model = GgufModel::new(&Shape::tiny(), 1, GgmlDType::F32);
        model.set("general.alignment", value);
        let (_folder, path) = written(&model);
        let error = outcome(&std::fs::read(path).unwrap()).unwrap_err();
        assert!(error.to_string().contains("general.alignment"), "{error}");
    }
    let mut model = GgufModel::new(&Shape::tiny(), 1, GgmlDType::F32);
    model.set("general.alignment", Value::U32(32));
    let (_folder, path) = written(&model);
    outcome(&std::fs::read(path).unwrap()).unwrap();
}
