//! Entry points of fuzz targets for model folders: configurations, and tensors that AWQ and GPTQ pack.

use std::path::Path;

use super::block::ModelConfig;
use super::packed::{Layout, Packing};
use super::quantization;
use super::weights::{WEIGHT, Weights};
use crate::error::LoadError;

/// Parses a config.json of any family with its `quantization_config`.
pub(crate) fn config(bytes: &[u8]) -> Result<ModelConfig, LoadError> {
    let file = Path::new("config.json");
    let packing = quantization::packing(bytes, file);
    let config = ModelConfig::parse(bytes, None, file)?;
    packing.map(|_| config)
}

/// Reads all weights of a safetensors file as packed ones. `layout` selects AWQ or a variant of GPTQ, `group_size` is
/// the number of inputs in a group; 0 for all. Returns the number of weights that were unpacked.
///
/// # Panics
/// Panics if a weight does not have the shape that its tensors promise.
pub fn fuzz_packed_weights(layout: u8, group_size: u8, file: Vec<u8>) -> usize {
    let layout = match layout % 5 {
        0 => Layout::Awq,
        variant => Layout::Gptq { bits: if variant % 2 == 0 { 8 } else { 4 }, zeros_less_one: variant > 2 },
    };
    let packing = Packing { layout, group_size: Some(usize::from(group_size)).filter(|size| *size > 0) };
    let weights = Weights::of_bytes(file, Path::new("model.safetensors"));
    let Ok(weights) = weights.and_then(|weights| weights.packed(Some(packing))) else { return 0 };
    let names: Vec<String> =
        weights.names().filter(|name| name.ends_with(WEIGHT)).map(str::to_owned).collect();
    let unpacked = names.iter().filter_map(|name| {
        let shape = weights.shape(name);
        let values = weights.values(name, shape).ok()?;
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
        Some(values)
    });
    unpacked.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds of the fuzz targets reach the code after all checks.
    #[test]
    fn seeds_are_accepted() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
        let read = |path: &Path| std::fs::read(path).unwrap();
        let mut configs = 0;
        for seed in std::fs::read_dir(seeds.join("config")).unwrap() {
            let path = seed.unwrap().path();
            let config = config(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            configs += usize::from(config.tensors(8).len() > 10);
        }
        assert!(configs >= 11, "{configs} seeds");
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/packed/modules.safetensors");
        // The file has modules of both layouts and all variants; the shapes of some fit several.
        assert!(fuzz_packed_weights(0, 32, read(&modules)) > 0);
        assert!(fuzz_packed_weights(1, 32, read(&modules)) > 0);
        assert_eq!(fuzz_packed_weights(0, 32, b"no safetensors".to_vec()), 0);
    }
}
