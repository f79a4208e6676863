//! The tensors of a GGUF file, under Hugging Face's names and in its row order.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, TensorInfo};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType as CandleType, Device, Tensor};
use lumos_kernels::QuantizedFormat;
use memmap2::Mmap;

use super::architectures::{Architecture, Found};
use super::names::{expert, stored_name, stored_row};
use super::{invalid, unsupported};
use crate::error::LoadError;
use crate::load::block::{FeedForward, ModelConfig};
use crate::load::tensors::{Part, Place, Suffix};
use crate::load::weights::{QuantizedMatrix, quantized_format};

/// Minimum alignment of a tensor's offset in bytes.
const ALIGNMENT: usize = 8;

/// All tensors of a file.
pub(crate) struct GgufTensors {
    bytes: Mmap,
    tensors: HashMap<String, Stored>,
    /// Experts that compute a token, and experts of a layer.
    experts: (usize, usize),
}

/// One tensor in the file, or one expert's part of a tensor.
struct Stored {
    dtype: GgmlDType,
    /// Rows and columns, or the length.
    shape: Vec<usize>,
    place: Range<usize>,
    /// Rows per head, if they are stored in the converter's order.
    head: Option<usize>,
    /// Whether it belongs to one of several experts.
    expert: bool,
}

impl GgufTensors {
    /// Checks the tensor table: each tensor is within the file and consists of whole blocks.
    pub(super) fn new(
        path: &Path,
        bytes: Mmap,
        content: &Content,
        config: &ModelConfig,
        architecture: &Architecture,
    ) -> Result<Self, LoadError> {
        let mut file = HashMap::new();
        for (name, info) in &content.tensor_infos {
            let place = place(name, info, content.tensor_data_offset, bytes.len(), path)?;
            let (dtype, shape) = (info.ggml_dtype, info.shape.dims().to_vec());
            file.insert(name.as_str(), Stored { dtype, shape, place, head: None, expert: false });
        }
        let mut tensors = HashMap::new();
        let parts = |layer| config.parts(layer).into_iter().map(move |part| Place::Layer(layer, part));
        let layers = (0..config.layers.len()).flat_map(parts);
        for place in [Place::Embedding, Place::FinalNorm, Place::Head].into_iter().chain(layers) {
            if let Some(mut stored) = weight(&file, place, config, path)? {
                stored.head = head(place, config, architecture);
                tensors.insert(config.name(place, Suffix::Weight), stored);
            }
            let biased = matches!(place, Place::Layer(_, part) if config.has_bias(part));
            let bias = stored_name(place, Suffix::Bias, config.block.norms);
            if let Some(stored) = biased.then(|| file.remove(bias.as_str())).flatten() {
                let stored = Stored { head: head(place, config, architecture), ..stored };
                tensors.insert(config.name(place, Suffix::Bias), stored);
            }
        }
        if let Some(name) = file.keys().filter(|name| name.ends_with(".bias")).min() {
            return Err(unsupported(path, format!("biases ({name})")));
        }
        for (name, stored) in &tensors {
            if stored.head.is_some_and(|size| !stored.shape[0].is_multiple_of(size)) {
                let rows = stored.shape[0];
                let reason = format!("tensor {name} has {rows} rows, which cannot be divided into heads");
                return Err(invalid(path, &reason));
            }
        }
        let experts = config.layers.iter().find_map(|layer| match &layer.feed_forward {
            FeedForward::Experts(experts) => Some((experts.active, experts.count)),
            FeedForward::Dense { .. } => None,
        });
        Ok(Self { bytes, tensors, experts: experts.unwrap_or((1, 1)) })
    }

    /// The Hugging Face names of the tensors, and their shapes.
    pub(crate) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|(name, stored)| (name.clone(), stored.shape.clone())).collect()
    }

    /// The values of a tensor, rows in Hugging Face's order. The type is the stored one, or float32 if the
    /// tensor is quantized.
    pub(crate) fn tensor(&self, name: &str) -> candle_core::Result<Option<Tensor>> {
        let Some(stored) = self.tensors.get(name) else { return Ok(None) };
        let bytes = &self.bytes[stored.place.clone()];
        let tensor = match float(stored.dtype) {
            Some(dtype) => Tensor::from_raw_buffer(bytes, dtype, &stored.shape, &Device::Cpu)?,
            None => {
                let storage = QStorage::from_data(Cow::Borrowed(bytes), &Device::Cpu, stored.dtype)?;
                QTensor::new(storage, stored.shape.clone())?.dequantize(&Device::Cpu)?
            }
        };
        match stored.rows() {
            Some(rows) => {
                let rows: Vec<u32> = rows.map(|row| row as u32).collect();
                tensor.index_select(&Tensor::new(rows, &Device::Cpu)?, 0).map(Some)
            }
            None => Ok(Some(tensor)),
        }
    }

    /// The type and the bytes of a tensor, if the file has its rows in Hugging Face's order.
    pub(crate) fn mapped(&self, name: &str) -> Option<(GgmlDType, &[u8])> {
        let stored = self.tensors.get(name).filter(|stored| stored.head.is_none())?;
        Some((stored.dtype, &self.bytes[stored.place.clone()]))
    }

    /// The blocks of a matrix whose quantized format is kept as stored.
    pub(crate) fn quantized(&self, name: &str) -> Option<QuantizedMatrix<'_>> {
        let stored = self.tensors.get(name)?;
        let format = quantized_format(stored.dtype)?;
        let &[rows, columns] = &stored.shape[..] else { return None };
        let bytes = &self.bytes[stored.place.clone()];
        let blocks = match stored.rows() {
            Some(order) => {
                let width = bytes.len() / rows;
                Cow::Owned(order.flat_map(|row| &bytes[row * width..][..width]).copied().collect())
            }
            None => Cow::Borrowed(bytes),
        };
        Some(QuantizedMatrix { format, columns, blocks })
    }

    /// The types of the matrices, the type of most values first, with their numbers of values.
    fn types(&self) -> Vec<(usize, GgmlDType)> {
        let mut types: Vec<(usize, GgmlDType)> = Vec::new();
        for stored in self.tensors.values().filter(|stored| stored.shape.len() == 2) {
            let count = stored.shape.iter().product::<usize>();
            match types.iter_mut().find(|(_, found)| *found == stored.dtype) {
                Some((sum, _)) => *sum += count,
                None => types.push((count, stored.dtype)),
            }
        }
        types.sort_unstable_by_key(|(count, dtype)| Reverse((*count, label(*dtype))));
        types
    }

    /// The block format of most values.
    pub(crate) fn most_common_format(&self) -> Option<QuantizedFormat> {
        self.types().into_iter().find_map(|(_, dtype)| quantized_format(dtype))
    }

    /// The types of the matrices if any is quantized, the type of most values first: `Q4_K + Q6_K`.
    pub(crate) fn quantization(&self) -> Option<String> {
        let types = self.types();
        let names = || types.iter().map(|(_, dtype)| label(*dtype)).collect::<Vec<_>>().join(" + ");
        types.iter().any(|(_, dtype)| float(*dtype).is_none()).then(names)
    }

    /// Size of the matrices in bytes, if any is quantized: of those that one token's forward pass reads, and of all.
    /// Those whose format is kept have their size in the file, the others `width` bytes per value. `unread` is the
    /// embedding if it is not the output matrix.
    pub(crate) fn quantized_bytes(&self, unread: Option<&str>, width: usize) -> Option<(usize, usize)> {
        self.quantization()?;
        let (mut shared, mut of_experts) = (0, 0);
        for (name, stored) in &self.tensors {
            if stored.shape.len() != 2 || unread == Some(name.as_str()) {
                continue;
            }
            let bytes = match quantized_format(stored.dtype) {
                Some(_) => stored.place.len(),
                None => stored.shape.iter().product::<usize>() * width,
            };
            *(if stored.expert { &mut of_experts } else { &mut shared }) += bytes;
        }
        let (active, count) = self.experts;
        Some((shared + of_experts / count * active, shared + of_experts))
    }
}

/// The stored weight of a place: a tensor, or one expert's part of a tensor.
fn weight(
    file: &HashMap<&str, Stored>,
    place: Place,
    config: &ModelConfig,
    path: &Path,
) -> Result<Option<Stored>, LoadError> {
    let name = stored_name(place, Suffix::Weight, config.block.norms);
    let expert = expert(place);
    let stored = file.get(name.as_str());
    let (Some(stored), Some((index, _))) = (stored, &expert) else {
        let old = expert.as_ref().and_then(|(_, name)| file.get(name.as_str()));
        return Ok(stored.or(old).map(|stored| Stored {
            dtype: stored.dtype,
            shape: stored.shape.clone(),
            place: stored.place.clone(),
            head: None,
            expert: expert.is_some(),
        }));
    };
    let expected = match place {
        Place::Layer(layer, _) => match &config.layers[layer].feed_forward {
            FeedForward::Experts(experts) => experts.count,
            FeedForward::Dense { .. } => 0,
        },
        _ => 0,
    };
    let &[count, rows, columns] = &stored.shape[..] else {
        return Err(invalid(path, &format!("tensor {name} has no dimension of experts")));
    };
    if count != expected {
        let reason = format!("tensor {name} has {count} experts, but the metadata has {expected}");
        return Err(invalid(path, &reason));
    }
    let size = stored.place.len() / count;
    let start = stored.place.start + index * size;
    let (dtype, place) = (stored.dtype, start..start + size);
    Ok(Some(Stored { dtype, shape: vec![rows, columns], place, head: None, expert: true }))
}

/// Rows per head of a place whose rows are stored in the converter's order.
fn head(place: Place, config: &ModelConfig, architecture: &Architecture) -> Option<usize> {
    let turned = matches!(place, Place::Layer(_, Part::Query | Part::Key));
    (architecture.interleaved && turned).then_some(config.head_size)
}

impl Stored {
    /// Indices of the file's rows in Hugging Face's order, if the file's order differs.
    fn rows(&self) -> Option<impl Iterator<Item = usize>> {
        let (size, rows) = (self.head?, self.shape[0]);
        Some((0..rows).map(move |row| stored_row(row, size)))
    }
}

/// The candle type of values that are not quantized.
fn float(dtype: GgmlDType) -> Option<CandleType> {
    match dtype {
        GgmlDType::F32 => Some(CandleType::F32),
        GgmlDType::F16 => Some(CandleType::F16),
        GgmlDType::BF16 => Some(CandleType::BF16),
        _ => None,
    }
}

/// ggml's name of a type: `Q4_K` for `Q4K`.
fn label(dtype: GgmlDType) -> String {
    let name = format!("{dtype:?}");
    match name.strip_suffix('K') {
        Some(bits) if name.starts_with('Q') => format!("{bits}_K"),
        _ => name,
    }
}

/// The byte range of a tensor, if it is within the file.
fn place(
    name: &str,
    info: &TensorInfo,
    data: u64,
    length: usize,
    file: &Path,
) -> Result<Range<usize>, LoadError> {
    let wrong = |reason: &str| invalid(file, &format!("tensor {name} {reason}"));
    let dims = info.shape.dims();
    let (block, bytes) = (info.ggml_dtype.block_size(), info.ggml_dtype.type_size());
    if matches!(info.ggml_dtype, GgmlDType::Q8_1 | GgmlDType::Q8K) {
        return Err(wrong("has an unsupported type"));
    }
    let values = dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let values = values.filter(|values| *values > 0).ok_or_else(|| wrong("has an invalid size"))?;
    if !dims.last().is_some_and(|columns| columns.is_multiple_of(block)) {
        return Err(wrong("has rows that are not a multiple of the block size"));
    }
    let bytes = (values / block).checked_mul(bytes);
    let start = data.checked_add(info.offset).and_then(|start| usize::try_from(start).ok());
    let end = start.zip(bytes).and_then(|(start, bytes)| start.checked_add(bytes));
    let (Some(start), Some(end)) = (start, end) else { return Err(wrong("has an invalid size")) };
    if end > length {
        return Err(wrong(&format!("ends at byte {end}, but the file has {length}")));
    }
    if !start.is_multiple_of(ALIGNMENT) {
        return Err(wrong(&format!("begins at byte {start}, which is not aligned")));
    }
    Ok(start..end)
}

/// What the tensors tell about the model, before its description is read.
pub(super) fn found(content: &Content, bytes: &[u8], file: &Path) -> Result<Found, LoadError> {
    let has = |name: &str| content.tensor_infos.contains_key(name);
    let factors = |name: &str| factors(content, bytes, file, name);
    let long_rope = factors("rope_factors_short.weight")?.zip(factors("rope_factors_long.weight")?);
    Ok(Found {
        tied_embeddings: !has("output.weight"),
        attention_biases: has("blk.0.attn_output.bias"),
        feed_forward_biases: has("blk.0.ffn_down.bias"),
        frequency_factors: factors("rope_freqs.weight")?,
        long_rope: long_rope.map(|(short, long)| [short, long]),
    })
}

/// A tensor of divisors of the rotary frequencies, one number per pair, if the file contains it.
fn factors(content: &Content, bytes: &[u8], file: &Path, name: &str) -> Result<Option<Vec<f32>>, LoadError> {
    let Some(info) = content.tensor_infos.get(name) else { return Ok(None) };
    let place = place(name, info, content.tensor_data_offset, bytes.len(), file)?;
    if info.ggml_dtype != GgmlDType::F32 {
        return Err(invalid(file, &format!("tensor {name} is not of type F32")));
    }
    let values = bytes[place].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let values: Vec<f32> = values.collect();
    if !values.iter().all(|value| value.is_finite() && *value > 0.0) {
        let reason = format!("tensor {name} has a value that is not a positive number");
        return Err(invalid(file, &reason));
    }
    Ok(Some(values))
}
