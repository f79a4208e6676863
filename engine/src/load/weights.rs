//! [`Weights`]: tensors by name from safetensors, PyTorch pickles or GGUF files.
//!
//! Opening reads only the tensor tables. Each tensor is read when the model requests it, checked against the
//! shape in the configuration, and changed by a LoRA adapter if there is one. Quantized matrices stay in
//! their block format.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use candle_core::pickle::PthTensors;
use candle_core::quantized::GgmlDType;
use candle_core::{DType as CandleType, Device, Tensor};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;

use super::adapter::Adapter;
use super::folder::WeightPaths;
use super::gguf::GgufTensors;
use super::{files, random};
use crate::error::LoadError;
use crate::simd::QuantizedFormat;

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
    /// Blocks, kept as stored.
    Blocks(QuantizedMatrix<'a>),
}

impl Matrix<'_> {
    /// The block format; `None` for numbers.
    pub(crate) fn format(&self) -> Option<QuantizedFormat> {
        match self {
            Self::Floats(_) => None,
            Self::Blocks(matrix) => Some(matrix.format),
        }
    }

    pub(crate) fn floats(&self) -> Option<&Tensor> {
        match self {
            Self::Floats(weight) => Some(weight),
            Self::Blocks(_) => None,
        }
    }

    pub(crate) fn blocks(&self) -> Option<&[u8]> {
        match self {
            Self::Floats(_) => None,
            Self::Blocks(matrix) => Some(&matrix.blocks),
        }
    }

    pub(crate) fn inputs(&self) -> candle_core::Result<usize> {
        match self {
            Self::Floats(weight) => weight.dim(1),
            Self::Blocks(matrix) => Ok(matrix.columns),
        }
    }
}

impl QuantizedFormat {
    /// The format of ggml's type; `None` for types that are widened to floats on loading.
    pub(crate) fn of(dtype: GgmlDType) -> Option<Self> {
        match dtype {
            GgmlDType::Q8_0 => Some(Self::Q8_0),
            GgmlDType::Q4K => Some(Self::Q4K),
            GgmlDType::Q6K => Some(Self::Q6K),
            _ => None,
        }
    }
}

impl fmt::Display for QuantizedFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        })
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
    /// Tensor name to index into `files`.
    tensors: HashMap<String, usize>,
    /// Changes to some of the tensors.
    adapter: Option<Box<Adapter>>,
}

enum WeightSource {
    Mapped { path: PathBuf, bytes: Mmap, start: usize, metadata: Metadata },
    Memory { path: PathBuf, bytes: &'static [u8], start: usize, metadata: Metadata },
    Pickle { path: PathBuf, tensors: PthTensors },
    Random { path: PathBuf, shapes: HashMap<String, Vec<usize>>, seed: u64 },
    Gguf(GgufTensors),
}

impl WeightSource {
    fn path(&self) -> &Path {
        match self {
            Self::Mapped { path, .. }
            | Self::Memory { path, .. }
            | Self::Pickle { path, .. }
            | Self::Random { path, .. } => path,
            Self::Gguf(tensors) => tensors.path(),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Mapped { metadata, .. } | Self::Memory { metadata, .. } => {
                metadata.tensors().into_keys().collect()
            }
            Self::Pickle { tensors, .. } => tensors.tensor_infos().keys().cloned().collect(),
            Self::Random { shapes, .. } => shapes.keys().cloned().collect(),
            Self::Gguf(tensors) => tensors.names().cloned().collect(),
        }
    }

    fn shape(&self, name: &str) -> Vec<usize> {
        match self {
            Self::Mapped { metadata, .. } | Self::Memory { metadata, .. } => {
                metadata.info(name).map_or(Vec::new(), |info| info.shape.clone())
            }
            Self::Pickle { tensors, .. } => {
                tensors.tensor_infos().get(name).map_or(Vec::new(), |info| info.layout.dims().to_vec())
            }
            Self::Random { shapes, .. } => shapes.get(name).cloned().unwrap_or_default(),
            Self::Gguf(tensors) => tensors.shape(name).unwrap_or_default().to_vec(),
        }
    }

    fn tensor(&self, name: &str) -> candle_core::Result<Option<Tensor>> {
        let (bytes, start, metadata): (&[u8], usize, &Metadata) = match self {
            Self::Mapped { bytes, start, metadata, .. } => (bytes, *start, metadata),
            Self::Memory { bytes, start, metadata, .. } => (bytes, *start, metadata),
            Self::Pickle { tensors, .. } => return tensors.get(name),
            Self::Gguf(tensors) => return tensors.tensor(name),
            Self::Random { shapes, seed, .. } => {
                return shapes.get(name).map(|shape| random::tensor(name, shape, *seed)).transpose();
            }
        };
        let Some(info) = metadata.info(name) else { return Ok(None) };
        let (first, last) = info.data_offsets;
        let dtype = CandleType::try_from(info.dtype)?;
        Tensor::from_raw_buffer(&bytes[start + first..start + last], dtype, &info.shape, &Device::Cpu)
            .map(Some)
    }
}

impl Weights {
    /// Opens the files of a folder and reads their tensor tables.
    pub(super) fn open(paths: &WeightPaths) -> Result<Self, LoadError> {
        let (place, files) = match paths {
            WeightPaths::Safetensors { folder, files } => {
                (folder, files.iter().map(|path| open_safetensors(path)).collect::<Result<_, _>>()?)
            }
            WeightPaths::Pickle { folder, files } => {
                (folder, files.iter().map(|path| open_pickle(path)).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self::index(if let [file] = paths.paths() { file.clone() } else { place.clone() }, files))
    }

    /// Safetensors embedded in the binary.
    pub(super) fn from_memory(bytes: &'static [u8], path: &Path) -> Result<Self, LoadError> {
        let (start, metadata) = contents(bytes, path)?;
        let source = WeightSource::Memory { path: path.to_owned(), bytes, start, metadata };
        Ok(Self::index(path.to_owned(), vec![source]))
    }

    /// Random weights from a seed; errors name `path`.
    pub(super) fn random(tensors: Vec<(String, Vec<usize>)>, seed: u64, path: &Path) -> Self {
        let shapes = tensors.into_iter().collect();
        let source = WeightSource::Random { path: path.to_owned(), shapes, seed };
        Self::index(path.to_owned(), vec![source])
    }

    /// The tensors of a GGUF file.
    pub(super) fn of_gguf(tensors: GgufTensors) -> Self {
        Self::index(tensors.path().to_owned(), vec![WeightSource::Gguf(tensors)])
    }

    fn index(place: PathBuf, files: Vec<WeightSource>) -> Self {
        let mut tensors = HashMap::new();
        for (index, file) in files.iter().enumerate() {
            tensors.extend(file.names().into_iter().map(|name| (name, index)));
        }
        Self { place, files, tensors, adapter: None }
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
    pub(super) fn shape(&self, name: &str) -> Vec<usize> {
        self.tensors.get(name).map_or(Vec::new(), |index| self.files[*index].shape(name))
    }

    fn source(&self, name: &str) -> Result<&WeightSource, LoadError> {
        self.tensors
            .get(name)
            .map(|index| &self.files[*index])
            .ok_or_else(|| LoadError::MissingTensor { name: name.to_owned(), file: self.place.clone() })
    }

    /// The source of a tensor, which must have the given shape.
    fn shaped(&self, name: &str, shape: &[usize]) -> Result<&WeightSource, LoadError> {
        let source = self.source(name)?;
        let found = source.shape(name);
        if found != shape {
            let (file, name, expected) = (source.path().to_owned(), name.to_owned(), shape.to_vec());
            return Err(LoadError::WrongShape { file, name, expected, found });
        }
        Ok(source)
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
        match self.shaped(name, &shape)? {
            WeightSource::Gguf(tensors) => Ok(tensors.quantized(name)),
            _ => Ok(None),
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
        let source = self.shaped(name, shape)?;
        match source.tensor(name) {
            Ok(Some(tensor)) if tensor.dtype().is_float() => Ok(tensor),
            Ok(Some(tensor)) => Err(LoadError::InvalidWeights {
                file: source.path().to_owned(),
                reason: format!("tensor {name} has type {:?}, not a float type", tensor.dtype()),
            }),
            Ok(None) => Err(LoadError::MissingTensor { name: name.to_owned(), file: self.place.clone() }),
            Err(error) => Err(self.invalid(name, &error)),
        }
    }

    /// A matrix of the given shape (outputs × inputs) in the form that is used for products.
    pub(crate) fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Matrix<'_>, LoadError> {
        match self.quantized(name, shape)? {
            Some(blocks) => Ok(Matrix::Blocks(blocks)),
            None => self.get(name, &shape).map(Matrix::Floats),
        }
    }

    /// Number of rows of a matrix with `columns` columns.
    pub(crate) fn rows(&self, name: &str, columns: usize) -> Result<usize, LoadError> {
        if let Some((weights, own)) = self.adapter.as_ref().and_then(|adapter| adapter.instead(name)) {
            return weights.rows(own, columns);
        }
        let source = self.source(name)?;
        match source.shape(name)[..] {
            [rows, found] if found == columns && rows > 0 => Ok(rows),
            ref found => Err(LoadError::WrongShape {
                file: source.path().to_owned(),
                name: name.to_owned(),
                expected: vec![1, columns],
                found: found.to_vec(),
            }),
        }
    }

    /// The error for a tensor that could not be read or converted.
    pub(crate) fn invalid(&self, name: &str, error: &candle_core::Error) -> LoadError {
        let file = self.tensors.get(name).map_or(&*self.place, |index| self.files[*index].path()).to_owned();
        LoadError::InvalidWeights { file, reason: format!("tensor {name}: {error}") }
    }

    /// The ggml types of the matrices if any is quantized, the type of most values first.
    pub(crate) fn quantization(&self) -> Option<String> {
        self.files.iter().find_map(|file| match file {
            WeightSource::Gguf(tensors) => tensors.quantization(),
            _ => None,
        })
    }

    /// The block format of most values.
    pub(crate) fn most_common_format(&self) -> Option<QuantizedFormat> {
        self.files.iter().find_map(|file| match file {
            WeightSource::Gguf(tensors) => tensors.most_common_format(),
            _ => None,
        })
    }

    /// Size of the matrices that one token's forward pass reads, in bytes, if any is quantized: quantized
    /// ones are kept as stored, the others have `width` bytes per value. `unread` is the embedding if it is
    /// not the output matrix.
    pub(crate) fn quantized_bytes(&self, unread: Option<&str>, width: usize) -> Option<usize> {
        self.quantization()?;
        let bytes = |(name, index): (&String, &usize)| match &self.files[*index] {
            WeightSource::Gguf(tensors) if tensors.shape(name).is_some_and(|shape| shape.len() == 2) => {
                tensors.matrix_bytes(name, width)
            }
            _ => 0,
        };
        Some(self.tensors.iter().filter(|(name, _)| unread != Some(name.as_str())).map(bytes).sum())
    }

    /// Number of values in all tensors.
    pub(crate) fn parameters(&self) -> u64 {
        let size = |(name, index): (&String, &usize)| {
            self.files[*index].shape(name).iter().map(|size| *size as u64).product::<u64>()
        };
        self.tensors.iter().filter(|(name, _)| name.ends_with(".weight")).map(size).sum()
    }
}

/// Offset of the data, and the tensor table.
fn contents(bytes: &[u8], path: &Path) -> Result<(usize, Metadata), LoadError> {
    let invalid = |error: &dyn std::fmt::Display| LoadError::InvalidWeights {
        file: path.to_owned(),
        reason: error.to_string(),
    };
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| invalid(&error))?;
    Ok((header + 8, metadata))
}

fn open_safetensors(path: &Path) -> Result<WeightSource, LoadError> {
    let bytes =
        files::map(path).map_err(|source| LoadError::FileUnreadable { file: path.to_owned(), source })?;
    let (start, metadata) = contents(&bytes, path)?;
    Ok(WeightSource::Mapped { path: path.to_owned(), bytes, start, metadata })
}

fn open_pickle(path: &Path) -> Result<WeightSource, LoadError> {
    std::fs::File::open(path)
        .map_err(|source| LoadError::FileUnreadable { file: path.to_owned(), source })?;
    let tensors = PthTensors::new(path, None)
        .map_err(|error| LoadError::InvalidWeights { file: path.to_owned(), reason: error.to_string() })?;
    if tensors.tensor_infos().is_empty() {
        let reason = "no tensors found in this PyTorch file".to_owned();
        return Err(LoadError::InvalidWeights { file: path.to_owned(), reason });
    }
    Ok(WeightSource::Pickle { path: path.to_owned(), tensors })
}
