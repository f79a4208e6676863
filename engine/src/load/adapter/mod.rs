//! LoRA adapters as saved by peft (<https://huggingface.co/docs/peft/developer_guides/checkpoint>). They are
//! merged into the base's matrices while these are loaded: `W' = W + scale · B · A`, in float32.
//!
//! [`Adapter`] lists the changes to each tensor of its base; [`adapter_base`] reads the name of that base.

mod config;
mod merge;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};

pub use config::AdapterBase;

use super::block::ModelConfig;
use super::files::read;
use super::folder::ModelFolder;
use super::tensors::{EMBEDDING, HEAD};
use super::weights::{Weights, to_f32};
use crate::error::LoadError;
use config::AdapterConfig;

const CONFIG: &str = "adapter_config.json";

/// The prefix that peft adds to the names of the model that it wraps.
const PREFIX: &str = "base_model.model.";

/// The function of one tensor of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The right factor of a module's product, `rank` × inputs.
    Down { module: String },
    /// The left factor, outputs × `rank`.
    Up { module: String },
    /// Replaces the base's tensor.
    Whole { tensor: String },
}

impl Part {
    /// Parses a name in peft's layout; `None` for other names.
    fn of(name: &str) -> Option<Self> {
        let name = name.strip_prefix(PREFIX)?;
        if let Some(module) = name.strip_suffix(".lora_A.weight") {
            return Some(Self::Down { module: module.to_owned() });
        }
        if let Some(module) = name.strip_suffix(".lora_B.weight") {
            return Some(Self::Up { module: module.to_owned() });
        }
        let module = name.strip_suffix(".weight").filter(|module| !module.contains("lora_"))?;
        let module = module.strip_suffix(".modules_to_save").unwrap_or(module);
        Some(Self::Whole { tensor: format!("{module}.weight") })
    }
}

/// An opened adapter: the change to each tensor of its base.
pub(crate) struct Adapter {
    /// Paths of the configuration and the weights.
    pub(super) files: Vec<PathBuf>,
    weights: Weights,
    changes: HashMap<String, Change>,
}

/// The change to one tensor of the base.
#[derive(Debug)]
enum Change {
    /// The product of two of the adapter's tensors is added.
    Product { down: String, up: String, rank: usize, scale: f32 },
    /// A tensor of the adapter replaces it.
    Whole(String),
}

/// The two factors of a module, by their names in the adapter's file.
#[derive(Default)]
struct Pair {
    down: Option<String>,
    up: Option<String>,
}

/// Reads the model that an adapter was trained on from the adapter's folder.
///
/// # Errors
/// [`LoadError`] if `adapter_config.json` is missing or names no model.
pub fn adapter_base(folder: &Path) -> Result<AdapterBase, LoadError> {
    let file = required_config(&ModelFolder::open(folder)?)?;
    config::base(&read(&file)?, &file)
}

fn required_config(folder: &ModelFolder) -> Result<PathBuf, LoadError> {
    folder.required(CONFIG, "copy the adapter as peft saved it, or as it was published, into the folder")
}

impl Adapter {
    /// Opens an adapter for a base of this shape with `rows` rows of embeddings, and checks that all its
    /// tensors match.
    pub(super) fn open(folder: &ModelFolder, base: &ModelConfig, rows: usize) -> Result<Self, LoadError> {
        let file = required_config(folder)?;
        let config = AdapterConfig::parse(&read(&file)?, &file)?;
        let paths = folder.adapter_weights()?;
        let weights = Weights::open(&paths)?;
        let weight_file = paths.files.first().unwrap_or(&file).clone();
        let changes = changes(&config, &weights, &weight_file, base, rows)?;
        let files = vec![file, weight_file];
        Ok(Self { files, weights, changes })
    }

    /// Whether a tensor of the base is changed or replaced.
    pub(super) fn changes(&self, name: &str) -> bool {
        self.changes.contains_key(name)
    }

    /// The adapter's tensor that replaces the base's tensor, if any.
    pub(super) fn instead(&self, name: &str) -> Option<(&Weights, &str)> {
        match self.changes.get(name)? {
            Change::Whole(own) => Some((&self.weights, own)),
            Change::Product { .. } => None,
        }
    }

    /// A tensor of the base with the adapter's change applied.
    pub(super) fn merged(&self, name: &str, tensor: Tensor) -> Result<Tensor, LoadError> {
        let Some(Change::Product { down, up, rank, scale }) = self.changes.get(name) else {
            return Ok(tensor);
        };
        let invalid = |error| self.weights.invalid(up, &error);
        let (outputs, inputs) = tensor.dims2().map_err(invalid)?;
        let down = self.weights.values(down, &[*rank, inputs])?;
        let factor = self.weights.values(up, &[outputs, *rank])?;
        let mut weight = to_f32(&tensor).map_err(invalid)?;
        merge::add_product(&mut weight, &factor, &down, *rank, *scale);
        Tensor::from_vec(weight, (outputs, inputs), &Device::Cpu).map_err(invalid)
    }
}

/// Maps the adapter's tensors to changes of the base's tensors, or returns the first mismatch.
fn changes(
    config: &AdapterConfig,
    weights: &Weights,
    file: &Path,
    base: &ModelConfig,
    rows: usize,
) -> Result<HashMap<String, Change>, LoadError> {
    let invalid = |reason: String| LoadError::InvalidAdapter { file: file.to_owned(), reason };
    let unsupported = |reason: String| LoadError::UnsupportedAdapter { file: file.to_owned(), reason };
    let (mut pairs, mut whole) = (BTreeMap::<String, Pair>::new(), BTreeMap::new());
    for name in weights.names() {
        match Part::of(name) {
            Some(Part::Down { module }) => pairs.entry(module).or_default().down = Some(name.to_owned()),
            Some(Part::Up { module }) => pairs.entry(module).or_default().up = Some(name.to_owned()),
            Some(Part::Whole { tensor }) => drop(whole.insert(tensor, name.to_owned())),
            None => {
                return Err(unsupported(format!(
                    "unexpected tensor {name}: expected base_model.model.….lora_A.weight, ….lora_B.weight or \
                     ….weight"
                )));
            }
        }
    }
    let rows = match whole.get(EMBEDDING) {
        Some(name) => weights.rows(name, base.hidden_size)?,
        None => rows,
    };
    let expected: HashMap<_, _> = base.tensors(rows).into_iter().collect();
    // Two tensors that are tied in the base would diverge if only one of them were trained.
    let changed =
        |tensor: &str| whole.contains_key(tensor) || pairs.contains_key(tensor.trim_end_matches(".weight"));
    if base.tied_embeddings && (changed(EMBEDDING) || changed(HEAD)) {
        let reason =
            "it changes embed_tokens or lm_head, which are one matrix in the base (tie_word_embeddings)";
        return Err(unsupported(reason.to_owned()));
    }
    let shape = |tensor: &str, name: &str| {
        expected
            .get(tensor)
            .ok_or_else(|| invalid(format!("tensor {name} is for {tensor}, which is missing in the base")))
    };
    let check = |name: &str, wanted: &[usize], why: &str| {
        let found = weights.shape(name);
        let mismatch = || invalid(format!("tensor {name} has shape {found:?}, but {why} {wanted:?}"));
        (found == wanted).then_some(()).ok_or_else(mismatch)
    };
    let mut changes = HashMap::new();
    for (module, pair) in pairs {
        let tensor = format!("{module}.weight");
        let (down, up) = match (pair.down, pair.up) {
            (Some(down), Some(up)) => (down, up),
            (Some(one), None) => return Err(invalid(format!("tensor {one} has no matching lora_B"))),
            (None, one) => {
                return Err(invalid(format!("tensor {} has no matching lora_A", one.unwrap_or_default())));
            }
        };
        let [outputs, inputs] = shape(&tensor, &down)?[..] else {
            return Err(unsupported(format!("tensor {down} is for {tensor}, which is not a matrix")));
        };
        if tensor == EMBEDDING {
            return Err(unsupported(format!("tensor {down} is for the embedding")));
        }
        let rank = config.rank(&module);
        let why = format!("r of {CONFIG} and the base require");
        check(&down, &[rank, inputs], &why)?;
        check(&up, &[outputs, rank], &why)?;
        if whole.contains_key(&tensor) {
            return Err(unsupported(format!(
                "tensor {down} is for {tensor}, which the adapter also replaces"
            )));
        }
        changes.insert(tensor, Change::Product { down, up, rank, scale: config.scale(&module) });
    }
    for (tensor, name) in whole {
        check(&name, shape(&tensor, &name)?, "the base requires")?;
        changes.insert(tensor, Change::Whole(name));
    }
    let is_there = |module: &str| {
        let own = format!("{module}.weight");
        let matches = |tensor: &str| tensor == own || tensor.ends_with(&format!(".{own}"));
        changes.iter().any(|(tensor, change)| matches!(change, Change::Whole(_)) && matches(tensor))
    };
    if let Some(module) = config.replaced.iter().find(|module| !is_there(module)) {
        return Err(invalid(format!(
            "modules_to_save in {CONFIG} has {module}, but the file has no tensor for it"
        )));
    }
    if changes.is_empty() {
        return Err(invalid("no tensor in the file".to_owned()));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_tensor_does() {
        let module = "model.layers.3.self_attn.q_proj".to_owned();
        let of = |rest: &str| Part::of(&format!("base_model.model.{rest}"));
        let down = of("model.layers.3.self_attn.q_proj.lora_A.weight");
        assert_eq!(down, Some(Part::Down { module: module.clone() }));
        assert_eq!(of("model.layers.3.self_attn.q_proj.lora_B.weight"), Some(Part::Up { module }));
        for name in ["lm_head.weight", "lm_head.modules_to_save.weight"] {
            assert_eq!(of(name), Some(Part::Whole { tensor: "lm_head.weight".to_owned() }));
        }
        for name in ["model.embed_tokens.lora_embedding_A", "x.lora_magnitude_vector", "x.lora_A.bias"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(Part::of("model.layers.0.self_attn.q_proj.lora_A.weight"), None);
    }
}
