//! Checkpoints of PyTorch ([`PickledTensors`]): a zip archive with a pickle, which describes the tensors, and a file
//! for each storage. `torch.save` does not compress them.
//!
//! [`check`] limits memory and stack for the pickle, then candle interprets it without executing anything. Tensors
//! are read from the mapped archive.

mod check;

use std::collections::HashMap;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

use candle_core::pickle::{Object, Stack, TensorInfo};
use candle_core::{DType, Device, Layout, Tensor};
use memmap2::Mmap;
use zip::{CompressionMethod, ZipArchive};

use super::files::{self, shown};
use crate::error::{LoadError, caught};
use check::check;

/// Ends of the names of the pickle in an archive, and of its extension. Storages are in a folder of the same name.
const PICKLE: &str = "data.pkl";
const EXTENSION: &str = ".pkl";

/// The tensors of a checkpoint.
pub(super) struct PickledTensors {
    archive: Mmap,
    tensors: HashMap<String, PickledTensor>,
}

struct PickledTensor {
    dtype: DType,
    layout: Layout,
    /// The place of its values in the archive; `None` if its storage is too short for its shape.
    place: Option<Range<usize>>,
}

impl PickledTensors {
    /// Opens a checkpoint and reads its pickle.
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let archive = files::map(path)?;
        let invalid = |reason| LoadError::InvalidWeights { file: path.to_owned(), reason };
        let tensors = described(&archive).map_err(invalid)?;
        Ok(Self { archive, tensors })
    }

    /// Names and shapes.
    pub(super) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, tensor)| (name.clone(), tensor.layout.dims().to_vec())).collect()
    }

    /// Reads a tensor, if it exists.
    pub(super) fn tensor(&self, name: &str) -> candle_core::Result<Option<Tensor>> {
        let Some(PickledTensor { dtype, layout, place }) = self.tensors.get(name) else { return Ok(None) };
        let Some(bytes) = place.clone().and_then(|place| self.archive.get(place)) else {
            candle_core::bail!("its storage is too short for its shape");
        };
        let read = |dims: &[usize]| Tensor::from_raw_buffer(bytes, *dtype, dims, &Device::Cpu);
        if layout.is_contiguous() {
            return read(layout.dims()).map(Some);
        }
        if !layout.is_fortran_contiguous() {
            candle_core::bail!("its values are neither in row order nor in column order");
        }
        // The transpose is in row order.
        let dims: Vec<usize> = layout.dims().iter().rev().copied().collect();
        let axes: Vec<usize> = (0..dims.len()).rev().collect();
        read(&dims)?.permute(axes).map(Some)
    }
}

/// The tensors that the pickle of an archive describes.
fn described(file: &[u8]) -> Result<HashMap<String, PickledTensor>, String> {
    let mut archive = ZipArchive::new(Cursor::new(file)).map_err(|error| error.to_string())?;
    let names = archive.file_names_raw().filter(|name| name.ends_with(PICKLE.as_bytes()));
    let names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let [name] = &names[..] else {
        return Err(format!("expected one `{PICKLE}` in the archive, found {}", names.len()));
    };
    let pickle = &file[stored(&mut archive, file.len(), name)?];
    let storages = name.strip_suffix(EXTENSION).unwrap_or(name);
    let mut tensors = HashMap::new();
    for info in interpreted(pickle)? {
        // Candle puts a slash before the name of the storage.
        let storage = stored(&mut archive, file.len(), &format!("{storages}{}", info.path))?;
        let place = place(&info, &storage);
        tensors.insert(info.name, PickledTensor { dtype: info.dtype, layout: info.layout, place });
    }
    if tensors.is_empty() {
        return Err("no tensors found in this PyTorch file".to_owned());
    }
    Ok(tensors)
}

/// The place of a file in an archive of `length` bytes.
fn stored(
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    length: usize,
    name: &str,
) -> Result<Range<usize>, String> {
    let invalid = |reason: &str| format!("`{}`: {reason}", shown(name));
    let index = archive.index_for_name_raw(name.as_bytes());
    let index = index.ok_or_else(|| invalid("not found in the archive"))?;
    let entry = archive.by_index_raw(index).map_err(|error| invalid(&error.to_string()))?;
    if entry.encrypted() || entry.compression() != CompressionMethod::Stored {
        return Err(invalid("compressed or encrypted: expected a file as `torch.save` writes it"));
    }
    let start = entry.data_start().and_then(|start| usize::try_from(start).ok());
    let place = start.zip(usize::try_from(entry.compressed_size()).ok());
    let place = place.and_then(|(start, size)| Some(start..start.checked_add(size)?));
    place.filter(|place| place.end <= length).ok_or_else(|| invalid("ends after the archive"))
}

/// The tensors in a pickle as candle interprets it, after [`check`]. Other values and tensors of unsupported types are
/// skipped, because the model may not need them.
fn interpreted(pickle: &[u8]) -> Result<Vec<TensorInfo>, String> {
    check(pickle)?;
    let interpret = || -> candle_core::Result<Vec<TensorInfo>> {
        let (mut stack, mut rest) = (Stack::empty(), pickle);
        stack.read_loop(&mut rest)?;
        let Object::Dict(entries) = stack.finalize()? else { return Ok(Vec::new()) };
        let info = |(name, value): (Object, Object)| {
            // Storages are looked up in the folder of the pickle.
            value.into_tensor_info(name, Path::new("")).unwrap_or_else(|error| {
                tracing::debug!("skipped a tensor: {}", first_line(&error.to_string()));
                None
            })
        };
        Ok(entries.into_iter().filter_map(info).collect())
    };
    caught("pickle", interpret).map_err(|reason| first_line(&reason))
}

/// An error of candle without its backtrace, shortened because it may show the values of a whole pickle.
fn first_line(error: &str) -> String {
    shown(error.lines().next().unwrap_or_default())
}

/// The place of a tensor's values in its storage; `None` if the storage is too short.
fn place(info: &TensorInfo, storage: &Range<usize>) -> Option<Range<usize>> {
    let mut sizes = info.layout.dims().iter();
    let bytes = sizes.try_fold(info.dtype.size_in_bytes(), |bytes, size| bytes.checked_mul(*size))?;
    // Candle counts the offset in bytes.
    let start = storage.start.checked_add(info.layout.start_offset())?;
    let end = start.checked_add(bytes)?;
    (end <= storage.end).then_some(start..end)
}

/// Entry point of a fuzz target. Returns the number of tensors in a pickle, and of those that fit into a storage of 1 KiB.
///
/// # Errors
/// If the pickle is rejected.
pub fn fuzz_pickle(pickle: &[u8]) -> Result<(usize, usize), String> {
    let tensors = interpreted(pickle)?;
    let fitting = tensors.iter().filter(|info| place(info, &(0..1 << 10)).is_some()).count();
    Ok((tensors.len(), fitting))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// The start of a dictionary with a tensor `x`: up to its arguments.
    const TENSOR: &[u8] = b"\x80\x02}(X\x01\0\0\0xctorch._utils\n_rebuild_tensor_v2\n";

    /// A pickle with a tensor of float32, in a storage of six values.
    fn state(size: [u8; 2], stride: [u8; 2], offset: u8) -> Vec<u8> {
        let pair = |[first, second]: [u8; 2]| [b'K', first, b'K', second, 0x86];
        [
            TENSOR,
            b"((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ",
            &[b'K', offset],
            &pair(size),
            &pair(stride),
            b"\x89ccollections\nOrderedDict\n)RtRu.",
        ]
        .concat()
    }

    fn archive(pickle: &[u8], storage: &str, method: CompressionMethod) -> Vec<u8> {
        let values: Vec<u8> = (0..6_u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in [("model/data.pkl", pickle), (storage, &values[..])] {
            zip.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn opened(file: &[u8]) -> Result<PickledTensors, LoadError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pytorch_model.bin");
        std::fs::write(&path, file).unwrap();
        PickledTensors::open(&path)
    }

    fn plain(pickle: &[u8]) -> Result<PickledTensors, LoadError> {
        opened(&archive(pickle, "model/data/0", CompressionMethod::Stored))
    }

    fn rejected(found: Result<PickledTensors, LoadError>, word: &str) {
        let error = found.err().unwrap().to_string();
        assert!(error.contains("pytorch_model.bin") && error.contains(word) && error.len() < 1000, "{error}");
    }

    #[test]
    fn tensors_are_read_in_either_order() {
        let values = |size, stride, offset| -> Vec<Vec<f32>> {
            let tensor = plain(&state(size, stride, offset)).unwrap().tensor("x").unwrap().unwrap();
            tensor.to_vec2().unwrap()
        };
        assert_eq!(values([2, 3], [3, 1], 0), [[0.0_f32, 1.0, 2.0], [3.0, 4.0, 5.0]]);
        assert_eq!(values([2, 3], [1, 2], 0), [[0.0_f32, 2.0, 4.0], [1.0, 3.0, 5.0]]);
        assert_eq!(values([1, 2], [2, 1], 4), [[4.0_f32, 5.0]]);
        let tensors = plain(&state([2, 3], [3, 1], 0)).unwrap();
        assert_eq!(tensors.shapes(), [("x".to_owned(), vec![2, 3])]);
        assert!(tensors.tensor("y").unwrap().is_none());
    }

    #[test]
    fn storages_hold_the_values_of_their_tensors() {
        for (size, stride, offset, word) in [
            ([2, 3], [3, 1], 1, "too short"),
            ([200, 200], [200, 1], 0, "too short"),
            ([2, 2], [3, 1], 0, "neither in row order"),
        ] {
            let error = plain(&state(size, stride, offset)).unwrap().tensor("x").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let (whole, stored) = (state([2, 3], [3, 1], 0), CompressionMethod::Stored);
        rejected(opened(&archive(&whole, "model/data/1", stored)), "`model/data/0`: not found");
        rejected(opened(&archive(&whole, "model/other/data.pkl", stored)), "found 2");
        rejected(opened(&archive(&whole, "model/data/0", CompressionMethod::Deflated)), "compressed");
    }

    /// The seeds of the fuzz target reach the code after all checks.
    #[test]
    fn seeds_have_tensors() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/pickle");
        let mut read = Vec::new();
        for seed in std::fs::read_dir(seeds).unwrap() {
            read.push(fuzz_pickle(&std::fs::read(seed.unwrap().path()).unwrap()).unwrap());
        }
        read.sort_unstable();
        assert_eq!(read, [(1, 1), (6, 5)]);
    }

    #[test]
    fn pickles_are_checked_before_they_are_interpreted() {
        let doubled = b"h\0h\0\x86q\0".repeat(64);
        rejected(plain(&[&b"\x80\x02K\x01q\0"[..], &doubled[..], b"."].concat()), "values");
        let nested = b"\x85".repeat(100_000);
        rejected(plain(&[&b"\x80\x02K\x01"[..], &nested[..], b"."].concat()), "deep");
        let whole = state([2, 3], [3, 1], 0);
        for length in 0..whole.len() {
            assert!(plain(&whole[..length]).is_err(), "{length}");
        }
        // Candle panics on tuples of arguments, and of a storage, that are too short.
        for arguments in [&b")Ru."[..], b"(K\x01\x85QK\0))tRu."] {
            rejected(plain(&[TENSOR, arguments].concat()), "library failed");
        }
        for nothing in [&b"\x80\x02}."[..], b"\x80\x02N."] {
            rejected(plain(nothing), "no tensors");
        }
    }
}
