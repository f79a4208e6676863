//! [`Weights`]: tensors by name from safetensors, PyTorch pickles or GGUF files.
//!
//! Opening reads only the tensor tables. Each tensor is read when the model requests it, checked against the
//! shape in the configuration, and changed by a LoRA adapter if there is one. Quantized matrices stay in
//! their block format; packed ones (AWQ, GPTQ) are unpacked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::quantized::GgmlDType;
use candle_core::{DType as CandleType, Device, Tensor};
use lumos_kernels::{DType, QuantizedFormat};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as StoredType, Metadata, TensorInfo};

use super::adapter::Adapter;
use super::files;
use super::folder::{WeightFormat, WeightPaths};
use super::gguf::GgufTensors;
use super::packed::{Layout, PackedModule, Packing};
use super::pickle::PickledTensors;
use super::random::RandomWeights;
use super::tensors::HEAD;
use crate::error::LoadError;

/// Ends of the names of a module's weight, and of its packed weight.
pub(super) const WEIGHT: &str = ".weight";
const PACKED: &str = ".qweight";

/// Maximum number of rows of the embedding, the size of the vocabulary: sums of sampling weights of more tokens could
/// overflow.
pub(crate) const MOST_TOKENS: usize = 1 << 23;

/// A matrix in one of ggml's block formats, as stored; its rows are whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuantizedMatrix<'a> {
    pub(crate) format: QuantizedFormat,
    /// Inputs; a multiple of the values in a block.
    pub(crate) columns: usize,
    /// Rows in order (one per output), in the order of Hugging Face's tensor of the same name.
    pub(crate) blocks: Cow<'a, [u8]>,
}

/// Weights of a linear layer as stored in a file: outputs × inputs.
pub(crate) enum Matrix<'a> {
    /// Numbers, to be converted to the requested type.
    Floats(Tensor),
    /// Numbers in a mapped file, to be converted to the requested type.
    Mapped(MappedMatrix<'a>),
    /// Blocks, kept as stored.
    Blocks(QuantizedMatrix<'a>),
}

/// A matrix of numbers in row order, as stored in a mapped file.
#[derive(Clone, Copy)]
pub(crate) struct MappedMatrix<'a> {
    pub(crate) dtype: DType,
    /// Outputs, inputs.
    pub(crate) shape: [usize; 2],
    /// Little-endian numbers, not aligned.
    pub(crate) bytes: &'a [u8],
}

impl Matrix<'_> {
    /// The block format; `None` for numbers.
    pub(crate) fn format(&self) -> Option<QuantizedFormat> {
        match self {
            Self::Floats(_) | Self::Mapped(_) => None,
            Self::Blocks(matrix) => Some(matrix.format),
        }
    }

    pub(crate) fn blocks(&self) -> Option<&[u8]> {
        match self {
            Self::Floats(_) | Self::Mapped(_) => None,
            Self::Blocks(matrix) => Some(&matrix.blocks),
        }
    }

    pub(crate) fn inputs(&self) -> candle_core::Result<usize> {
        match self {
            Self::Floats(weight) => weight.dim(1),
            Self::Mapped(matrix) => Ok(matrix.shape[1]),
            Self::Blocks(matrix) => Ok(matrix.columns),
        }
    }
}

/// The block format of ggml's type; `None` for types that are widened to floats on loading.
pub(crate) fn quantized_format(dtype: GgmlDType) -> Option<QuantizedFormat> {
    match dtype {
        GgmlDType::Q8_0 => Some(QuantizedFormat::Q8_0),
        GgmlDType::Q4K => Some(QuantizedFormat::Q4K),
        GgmlDType::Q6K => Some(QuantizedFormat::Q6K),
        _ => None,
    }
}

/// The type of numbers that are not quantized.
pub(crate) fn float_type(dtype: GgmlDType) -> Option<DType> {
    match dtype {
        GgmlDType::F32 => Some(DType::F32),
        GgmlDType::F16 => Some(DType::F16),
        GgmlDType::BF16 => Some(DType::Bf16),
        _ => None,
    }
}

/// The values of a tensor of any float type, in row order.
pub(crate) fn to_f32(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(CandleType::F32)?.flatten_all()?.to_vec1::<f32>()
}

/// All tensors of a checkpoint.
pub(crate) struct Weights {
    /// The path in errors about tensors that no file contains.
    place: PathBuf,
    files: Vec<WeightSource>,
    /// Tensor name to index into `files`, and shape.
    tensors: HashMap<String, (usize, Vec<usize>)>,
    /// Changes to some of the tensors.
    adapter: Option<Box<Adapter>>,
    /// The layout of packed weights. Their names and shapes when unpacked are in `tensors`.
    packing: Option<Packing>,
}

/// Tensors with their shapes.
type Shapes = Vec<(String, Vec<usize>)>;

/// One file, or another source of tensors.
struct WeightSource {
    path: PathBuf,
    storage: WeightStorage,
}

enum WeightStorage {
    /// A file in memory, the offset of its data, and its tensor table.
    Safetensors(Box<dyn AsRef<[u8]> + Send + Sync>, usize, Metadata),
    Pickle(PickledTensors),
    Random(RandomWeights),
    Gguf(GgufTensors),
}

impl WeightSource {
    /// Safetensors in memory; errors name `path`.
    fn safetensors(
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        path: &Path,
    ) -> Result<(Self, Shapes), LoadError> {
        let (header, metadata) = SafeTensors::read_metadata(bytes.as_ref()).map_err(|error| {
            LoadError::InvalidWeights { file: path.to_owned(), reason: error.to_string() }
        })?;
        let shape = |(name, info): (String, &TensorInfo)| (name, info.shape.clone());
        let shapes = metadata.tensors().into_iter().map(shape).collect();
        let storage = WeightStorage::Safetensors(Box::new(bytes), header + 8, metadata);
        Ok((Self { path: path.to_owned(), storage }, shapes))
    }

    /// A PyTorch pickle.
    fn pickle(path: &Path) -> Result<(Self, Shapes), LoadError> {
        let tensors = PickledTensors::open(path)?;
        let shapes = tensors.shapes();
        Ok((Self { path: path.to_owned(), storage: WeightStorage::Pickle(tensors) }, shapes))
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> candle_core::Result<Option<Tensor>> {
        match &self.storage {
            WeightStorage::Safetensors(bytes, start, metadata) => {
                let Some(info) = metadata.info(name) else { return Ok(None) };
                let (first, last) = info.data_offsets;
                let bytes = &(**bytes).as_ref()[start + first..start + last];
                let dtype = CandleType::try_from(info.dtype)?;
                Tensor::from_raw_buffer(bytes, dtype, shape, &Device::Cpu).map(Some)
            }
            WeightStorage::Pickle(tensors) => tensors.tensor(name),
            WeightStorage::Random(weights) => weights.tensor(name, shape).map(Some),
            WeightStorage::Gguf(tensors) => tensors.tensor(name),
        }
    }
}

impl Weights {
    /// Opens the files of a folder and reads their tensor tables.
    pub(super) fn open(WeightPaths { folder, files, format }: &WeightPaths) -> Result<Self, LoadError> {
        let place = if let [file] = &files[..] { file } else { folder };
        let open = |path: &PathBuf| match format {
            WeightFormat::Safetensors => WeightSource::safetensors(files::map(path)?, path),
            WeightFormat::Pickle => WeightSource::pickle(path),
        };
        let sources = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        check_unique(&sources)?;
        Ok(Self::index(place, sources))
    }

    /// Safetensors in memory; errors name `path`.
    pub(super) fn of_bytes(
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
        path: &Path,
    ) -> Result<Self, LoadError> {
        Ok(Self::index(path, vec![WeightSource::safetensors(bytes, path)?]))
    }

    /// Random weights; errors name `path`.
    pub(super) fn random(shapes: Shapes, weights: RandomWeights, path: &Path) -> Self {
        let source = WeightSource { path: path.to_owned(), storage: WeightStorage::Random(weights) };
        Self::index(path, vec![(source, shapes)])
    }

    /// The tensors of a GGUF file.
    pub(super) fn of_gguf(tensors: GgufTensors, path: &Path) -> Self {
        let shapes = tensors.shapes();
        let source = WeightSource { path: path.to_owned(), storage: WeightStorage::Gguf(tensors) };
        Self::index(path, vec![(source, shapes)])
    }

    fn index(place: &Path, sources: Vec<(WeightSource, Shapes)>) -> Self {
        let (mut files, mut tensors) = (Vec::new(), HashMap::new());
        for (source, shapes) in sources {
            tensors.extend(shapes.into_iter().map(|(name, shape)| (name, (files.len(), shape))));
            files.push(source);
        }
        Self { place: place.to_owned(), files, tensors, adapter: None, packing: None }
    }

    /// The same tensors, with the weights of packed modules (those with a `qweight`) under their usual names.
    pub(super) fn packed(mut self, packing: Option<Packing>) -> Result<Self, LoadError> {
        let modules = self.tensors.iter().filter_map(|(name, (file, shape))| {
            Some((name.strip_suffix(PACKED)?.to_owned(), *file, shape.clone()))
        });
        for (module, file, shape) in modules.collect::<Vec<_>>() {
            let Some(packing) = packing else {
                let reason =
                    format!("tensor {module}{PACKED} is packed, but config.json has no quantization_config");
                return Err(LoadError::Unsupported { file: self.files[file].path.clone(), reason });
            };
            let &[rows, columns] = &shape[..] else {
                return Err(wrong_shape(&self.files[file], &format!("{module}{PACKED}"), &[0, 0], &shape));
            };
            let unpacked = packing.unpacked([rows, columns]).to_vec();
            self.tensors.insert(format!("{module}{WEIGHT}"), (file, unpacked));
        }
        self.packing = packing;
        Ok(self)
    }

    /// The format of packed weights: `AWQ 4-bit`. `None` if no weight is packed.
    pub(crate) fn packed_format(&self) -> Option<String> {
        let packing = self.packing.filter(|_| self.tensors.keys().any(|name| name.ends_with(PACKED)))?;
        Some(packing.label())
    }

    /// The module of a weight and the layout in which the weight is packed, if it is.
    fn packed_module<'a>(&self, name: &'a str) -> Option<(&'a str, Packing)> {
        let (packing, module) = (self.packing?, name.strip_suffix(WEIGHT)?);
        self.tensors.contains_key(&format!("{module}{PACKED}")).then_some((module, packing))
    }

    fn unpacked(&self, module: &str, packing: Packing, shape: &[usize]) -> Result<Tensor, LoadError> {
        let weight = format!("{module}{WEIGHT}");
        let source = self.shaped(&weight, shape)?;
        let invalid = |reason: String| LoadError::InvalidWeights {
            file: source.path.clone(),
            reason: format!("{module}: {reason}"),
        };
        let &[outputs, inputs] = shape else { return Err(self.missing(&weight)) };
        let shapes = packing.shapes([outputs, inputs]).map_err(invalid)?;
        let part = |part: &str| format!("{module}.{part}");
        let words = self.words(&part("qweight"), &shapes.words)?;
        let zeros = self.words(&part("qzeros"), &shapes.zeros)?;
        let scales = self.values(&part("scales"), &shapes.scales)?;
        let index = part("g_idx");
        let indexed = matches!(packing.layout, Layout::Gptq { .. }) && self.tensors.contains_key(&index);
        let groups = indexed.then(|| self.words(&index, &[inputs])).transpose()?;
        let module =
            PackedModule { words: &words, zeros: &zeros, scales: &scales, groups: groups.as_deref() };
        let values = packing.unpack(&module, [outputs, inputs]).map_err(invalid)?;
        Tensor::from_vec(values, shape, &Device::Cpu).map_err(|error| self.invalid(&weight, &error))
    }

    /// The words of a tensor of the given shape.
    fn words(&self, name: &str, shape: &[usize]) -> Result<Vec<u32>, LoadError> {
        let source = self.shaped(name, shape)?;
        let WeightStorage::Safetensors(bytes, start, metadata) = &source.storage else {
            let reason =
                format!("tensor {name} is packed; packed weights are supported in safetensors files");
            return Err(LoadError::Unsupported { file: source.path.clone(), reason });
        };
        let info = metadata.info(name).ok_or_else(|| self.missing(name))?;
        if !matches!(info.dtype, safetensors::Dtype::I32 | safetensors::Dtype::U32) {
            let reason = format!("tensor {name} has type {}, not I32", info.dtype);
            return Err(LoadError::InvalidWeights { file: source.path.clone(), reason });
        }
        let (first, last) = info.data_offsets;
        let bytes = &(**bytes).as_ref()[start + first..start + last];
        Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    /// The same tensors with an adapter applied.
    pub(super) fn adapted(self, adapter: Adapter) -> Self {
        Self { adapter: Some(Box::new(adapter)), ..self }
    }

    /// The names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor; empty if the tensor does not exist.
    pub(super) fn shape(&self, name: &str) -> &[usize] {
        self.tensors.get(name).map_or(&[], |(_, shape)| shape)
    }

    /// The source of a tensor, and its shape.
    fn source(&self, name: &str) -> Result<(&WeightSource, &[usize]), LoadError> {
        let (index, shape) = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        Ok((&self.files[*index], shape))
    }

    fn missing(&self, name: &str) -> LoadError {
        LoadError::MissingTensor { name: name.to_owned(), file: self.place.clone() }
    }

    /// The source of a tensor, which must have the given shape.
    fn shaped(&self, name: &str, shape: &[usize]) -> Result<&WeightSource, LoadError> {
        let (source, found) = self.source(name)?;
        if found == shape { Ok(source) } else { Err(wrong_shape(source, name, shape, found)) }
    }

    /// A matrix of the given shape as stored, if its quantized format can be multiplied directly. Use
    /// [`get`](Self::get) for all other matrices.
    pub(crate) fn quantized(
        &self,
        name: &str,
        shape: [usize; 2],
    ) -> Result<Option<QuantizedMatrix<'_>>, LoadError> {
        // An adapter changes floats, not blocks.
        if self.adapter.is_some() {
            return Ok(None);
        }
        match &self.shaped(name, &shape)?.storage {
            WeightStorage::Gguf(tensors) => Ok(tensors.quantized(name)),
            _ => Ok(None),
        }
    }

    /// The type and the bytes of a tensor in the mapped file, row after row, if they are used unchanged.
    ///
    /// # Errors
    /// Fails if the tensor is missing or has another shape.
    pub(crate) fn mapped(
        &self,
        name: &str,
        shape: &[usize],
    ) -> Result<Option<(GgmlDType, &[u8])>, LoadError> {
        let changed = self.adapter.as_deref().is_some_and(|adapter| adapter.changes(name));
        if changed || self.packed_module(name).is_some() {
            return Ok(None);
        }
        match &self.shaped(name, shape)?.storage {
            WeightStorage::Safetensors(bytes, start, metadata) => {
                let Some(info) = metadata.info(name) else { return Ok(None) };
                let dtype = match info.dtype {
                    StoredType::F32 => GgmlDType::F32,
                    StoredType::BF16 => GgmlDType::BF16,
                    StoredType::F16 => GgmlDType::F16,
                    _ => return Ok(None),
                };
                let (first, last) = info.data_offsets;
                Ok((**bytes).as_ref().get(start + first..start + last).map(|bytes| (dtype, bytes)))
            }
            WeightStorage::Gguf(tensors) => Ok(tensors.mapped(name)),
            WeightStorage::Pickle(_) | WeightStorage::Random(_) => Ok(None),
        }
    }

    /// A tensor of the given shape, in its type in the file; in float32 if it is quantized or if an adapter
    /// changes it.
    pub(crate) fn get(&self, name: &str, shape: &[usize]) -> Result<Tensor, LoadError> {
        let Some(adapter) = &self.adapter else { return self.stored(name, shape) };
        match adapter.instead(name) {
            Some((weights, own)) => weights.stored(own, shape),
            None => adapter.merged(name, self.stored(name, shape)?),
        }
    }

    fn stored(&self, name: &str, shape: &[usize]) -> Result<Tensor, LoadError> {
        if let Some((module, packing)) = self.packed_module(name) {
            return self.unpacked(module, packing, shape);
        }
        let source = self.shaped(name, shape)?;
        let tensor = source.tensor(name, shape).map_err(|error| self.invalid(name, &error))?;
        let tensor = tensor.ok_or_else(|| self.missing(name))?;
        if !tensor.dtype().is_float() {
            let reason = format!("tensor {name} has type {:?}, not a float type", tensor.dtype());
            return Err(LoadError::InvalidWeights { file: source.path.clone(), reason });
        }
        Ok(tensor)
    }

    /// The values of a tensor of the given shape, in row order.
    pub(crate) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        to_f32(&self.get(name, shape)?).map_err(|error| self.invalid(name, &error))
    }

    /// The values of vectors, given by name and length, one after the other; `offset` is added to each value.
    pub(crate) fn vector(&self, parts: &[(String, usize)], offset: f32) -> Result<Vec<f32>, LoadError> {
        let mut values = Vec::with_capacity(parts.iter().map(|(_, length)| length).sum());
        for (name, length) in parts {
            values.extend(self.values(name, &[*length])?);
        }
        if offset != 0.0 {
            values.iter_mut().for_each(|value| *value += offset);
        }
        Ok(values)
    }

    /// Checks that there is an output matrix, unless it is the embedding.
    pub(crate) fn check_head(&self, tied: bool) -> Result<(), LoadError> {
        let replaced = |adapter: &Adapter| adapter.instead(HEAD).is_some();
        if tied || self.tensors.contains_key(HEAD) || self.adapter.as_deref().is_some_and(replaced) {
            return Ok(());
        }
        Err(self.missing(&format!("{HEAD} (config.json: tie_word_embeddings is false)")))
    }

    /// A matrix of the given shape (outputs × inputs) in the form that is used for products.
    pub(crate) fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Matrix<'_>, LoadError> {
        if let Some(blocks) = self.quantized(name, shape)? {
            return Ok(Matrix::Blocks(blocks));
        }
        if let Some((dtype, bytes)) = self.mapped(name, &shape)?
            && let Some(dtype) = float_type(dtype)
        {
            return Ok(Matrix::Mapped(MappedMatrix { dtype, shape, bytes }));
        }
        self.get(name, &shape).map(Matrix::Floats)
    }

    /// Number of rows of an embedding with `columns` columns, which is the size of the vocabulary.
    pub(crate) fn rows(&self, name: &str, columns: usize) -> Result<usize, LoadError> {
        if let Some((weights, own)) = self.adapter.as_ref().and_then(|adapter| adapter.instead(name)) {
            return weights.rows(own, columns);
        }
        match self.source(name)? {
            (source, &[rows, found]) if found == columns && rows > MOST_TOKENS => {
                let reason = format!("tensor {name} has {rows} rows, more than the maximum of {MOST_TOKENS}");
                Err(LoadError::Unsupported { file: source.path.clone(), reason })
            }
            (_, &[rows, found]) if found == columns && rows > 0 => Ok(rows),
            (source, found) => Err(wrong_shape(source, name, &[1, columns], found)),
        }
    }

    /// The error for a tensor that could not be read or converted.
    pub(crate) fn invalid(&self, name: &str, error: &candle_core::Error) -> LoadError {
        let file = self.source(name).map_or(&self.place, |(source, _)| &source.path);
        LoadError::InvalidWeights { file: file.clone(), reason: format!("tensor {name}: {error}") }
    }

    /// The tensors of a GGUF file, if they come from one.
    pub(crate) fn gguf(&self) -> Option<&GgufTensors> {
        self.files.iter().find_map(|file| match &file.storage {
            WeightStorage::Gguf(tensors) => Some(tensors),
            _ => None,
        })
    }

    /// Number of values in all weights and biases.
    pub(crate) fn parameters(&self) -> u64 {
        let counted = |name: &str| name.ends_with(WEIGHT) || name.ends_with(".bias");
        let weights = self.tensors.iter().filter(|(name, _)| counted(name));
        weights.map(|(_, (_, shape))| shape.iter().map(|size| *size as u64).product::<u64>()).sum()
    }
}

fn wrong_shape(source: &WeightSource, name: &str, expected: &[usize], found: &[usize]) -> LoadError {
    let (expected, found) = (expected.to_vec(), found.to_vec());
    LoadError::WrongShape { file: source.path.clone(), name: name.to_owned(), expected, found }
}

/// Checks that no tensor is in two files.
fn check_unique(sources: &[(WeightSource, Shapes)]) -> Result<(), LoadError> {
    let mut places = HashMap::new();
    for (source, shapes) in sources {
        let file = &source.path;
        for (name, _) in shapes {
            if let Some(other) = places.insert(name, file)
                && other != file
            {
                let (name, file, other) = (name.clone(), file.clone(), other.clone());
                return Err(LoadError::DuplicateTensor { name, file, other });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tensors::EMBEDDING;
    use crate::random::RandomShape;

    #[test]
    fn vocabularies_have_a_maximum() {
        let place = Path::new("model.safetensors");
        let config = RandomShape::With1M.parsed(place).unwrap();
        let rows = |rows| {
            let shapes = vec![(EMBEDDING.to_owned(), vec![rows, 128])];
            Weights::random(shapes, RandomWeights::new(1, &config), place).rows(EMBEDDING, 128)
        };
        assert_eq!(rows(MOST_TOKENS).unwrap(), MOST_TOKENS);
        let error = rows(MOST_TOKENS + 1).unwrap_err().to_string();
        for word in ["model.safetensors", EMBEDDING, "8388609", "8388608"] {
            assert!(error.contains(word), "{error:?} lacks {word:?}");
        }
    }
}
