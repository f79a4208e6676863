//! Small random LoRA adapters in peft's layout, and a merge by hand as the reference for the engine's.

use std::path::Path;

use serde_json::{Value, json};

use super::{NamedTensor, Shape, Uniform, families, safetensors};

/// A low-rank product of an adapter.
#[derive(Clone)]
pub(crate) struct Product {
    /// Module within the model, such as `model.layers.0.mlp.up_proj`.
    pub(crate) module: String,
    pub(crate) rank: usize,
    /// The scale that the engine must apply.
    pub(crate) scale: f32,
    pub(crate) up: Vec<f32>,
    pub(crate) down: Vec<f32>,
}

/// adapter_config.json and the tensors of an adapter.
#[derive(Clone)]
pub(crate) struct Adapter {
    pub(crate) config: Value,
    pub(crate) products: Vec<Product>,
    /// Tensors that replace those of the base.
    pub(crate) whole: Vec<NamedTensor>,
}

impl Adapter {
    /// Creates random products for the modules for which `wanted` returns a rank and a scale.
    pub(crate) fn random(shape: &Shape, seed: u64, wanted: impl Fn(&str) -> Option<(usize, f32)>) -> Self {
        let mut random = Uniform::new(seed);
        let mut products = Vec::new();
        let (matrices, _) = families::tensors(shape);
        let layers = matrices.into_iter().filter(|(name, _, _)| name.starts_with("model.layers."));
        let head = ("lm_head.weight".to_owned(), shape.vocabulary, shape.hidden);
        for (name, rows, columns) in layers.chain([head]) {
            let module = name.trim_end_matches(".weight").to_owned();
            let Some((rank, scale)) = wanted(&module) else { continue };
            let down = random.values(rank * columns, 1.0 / (columns as f32).sqrt());
            let up = random.values(rows * rank, 1.0 / (rank as f32).sqrt());
            products.push(Product { module, rank, scale, up, down });
        }
        Self { config: config(4, 8.0), products, whole: Vec::new() }
    }

    /// Creates such products for the attention's queries and values, with `r` 4 and `lora_alpha` 8.
    pub(crate) fn usual(shape: &Shape, seed: u64) -> Self {
        let ends = |module: &str| module.ends_with("q_proj") || module.ends_with("v_proj");
        Self::random(shape, seed, |module| ends(module).then_some((4, 2.0)))
    }

    /// Sets fields of the configuration.
    #[must_use]
    pub(crate) fn with(mut self, fields: &Value) -> Self {
        let (config, fields) = (self.config.as_object_mut().unwrap(), fields.as_object().unwrap());
        config.extend(fields.clone());
        self
    }

    /// Returns the tensors of adapter_model.safetensors.
    pub(crate) fn tensors(&self) -> Vec<NamedTensor> {
        let mut tensors = Vec::new();
        for Product { module, rank, up, down, .. } in &self.products {
            let name = |factor: &str| format!("base_model.model.{module}.{factor}.weight");
            tensors.push((name("lora_A"), vec![*rank, down.len() / rank], down.clone()));
            tensors.push((name("lora_B"), vec![up.len() / rank, *rank], up.clone()));
        }
        let whole = self.whole.iter().cloned();
        tensors
            .extend(whole.map(|(name, shape, values)| (format!("base_model.model.{name}"), shape, values)));
        tensors
    }

    /// Writes the adapter to a folder.
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("adapter_config.json"), self.config.to_string()).unwrap();
        std::fs::write(folder.join("adapter_model.safetensors"), safetensors(&self.tensors())).unwrap();
    }

    /// Applies the adapter to the tensors of a base: `W + scale · (B · A)`, value by value.
    pub(crate) fn merge(&self, mut tensors: Vec<NamedTensor>) -> Vec<NamedTensor> {
        for (name, shape, values) in &mut tensors {
            if let Some((_, whole_shape, whole)) = self.whole.iter().find(|(whole, _, _)| whole == name) {
                (*shape, *values) = (whole_shape.clone(), whole.clone());
            }
            let product = self.products.iter().find(|product| format!("{}.weight", product.module) == *name);
            let Some(Product { rank, scale, up, down, .. }) = product else { continue };
            let columns = shape[1];
            for (index, value) in values.iter_mut().enumerate() {
                let (row, column) = (index / columns, index % columns);
                let mut sum = 0.0;
                for step in 0..*rank {
                    sum += up[row * rank + step] * down[step * columns + column];
                }
                *value += scale * sum;
            }
        }
        tensors
    }
}

/// Returns the relevant fields of adapter_config.json, as peft writes it.
pub(crate) fn config(rank: usize, alpha: f64) -> Value {
    json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "base", "revision": null,
        "r": rank, "lora_alpha": alpha, "lora_dropout": 0.05, "bias": "none", "fan_in_fan_out": false,
        "target_modules": ["q_proj", "v_proj"], "modules_to_save": null, "rank_pattern": {}, "alpha_pattern": {},
        "use_rslora": false, "use_dora": false, "init_lora_weights": true, "layer_replication": null,
    })
}
