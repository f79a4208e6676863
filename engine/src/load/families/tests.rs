//! Descriptions of published models, from the relevant fields of their config.json.

use std::path::Path;

use serde_json::{Value, json};

use crate::load::block::{
    Activation, Biases, ExpertConfig, ExpertNames, FeedForward, ModelConfig, Norms, Projections,
    QueryKeyNorm, RopeScaling,
};

/// Parses a file with hidden size, intermediate size, layers, heads and key-value heads, and other fields.
fn parse(architecture: &str, sizes: [usize; 5], fields: Value) -> ModelConfig {
    let [hidden, intermediate, layers, heads, key_value_heads] = sizes;
    let mut config = json!({
        "architectures": [architecture], "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": key_value_heads,
    });
    let Value::Object(fields) = fields else { panic!("not an object: {fields}") };
    config.as_object_mut().unwrap().extend(fields);
    ModelConfig::parse(config.to_string().as_bytes(), None, Path::new("config.json")).unwrap()
}

/// The windows of all layers.
fn windows(config: &ModelConfig) -> Vec<Option<usize>> {
    config.layers.iter().map(|layer| layer.window).collect()
}

#[test]
fn qwen() {
    let fields = json!({
        "max_position_embeddings": 32768, "max_window_layers": 28, "rope_theta": 1000000.0,
        "sliding_window": 131072, "use_sliding_window": false, "tie_word_embeddings": true,
    });
    let qwen = parse("Qwen2ForCausalLM", [1536, 8960, 28, 12, 2], fields);
    assert_eq!((qwen.head_size, qwen.tied_embeddings, qwen.ropes[0].theta), (128, true, 1e6));
    assert_eq!(qwen.block.biases, Biases { query_key_value: true, ..Biases::default() });
    assert_eq!(windows(&qwen), [None; 28]);
    let fields = json!({
        "max_position_embeddings": 32768, "max_window_layers": 2, "sliding_window": 64, "use_sliding_window": true,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
    });
    let qwen = parse("Qwen2ForCausalLM", [3584, 18944, 4, 28, 4], fields);
    assert_eq!(windows(&qwen), [None, None, Some(64), Some(64)]);
    let RopeScaling::Yarn { attention_factor, beta_fast, truncate, .. } = qwen.ropes[0].scaling else {
        panic!("{:?}", qwen.ropes)
    };
    assert!((attention_factor - 1.138_629_4).abs() < 1e-6 && truncate && beta_fast == 32.0);
    let qwen = parse("Qwen3ForCausalLM", [1024, 3072, 28, 16, 8], json!({"max_position_embeddings": 40960}));
    assert_eq!((qwen.head_size, qwen.block.query_key_norm), (128, QueryKeyNorm::PerHead));
    assert_eq!(qwen.block.biases, Biases::default());
    let fields = json!({
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "max_window_layers": 48,
        "sliding_window": null, "use_sliding_window": false, "max_position_embeddings": 40960,
    });
    let qwen = parse("Qwen3MoeForCausalLM", [2048, 6144, 48, 32, 4], fields);
    let (count, active, width, names) = (128, 8, 768, ExpertNames::Qwen);
    let experts = FeedForward::Experts(ExpertConfig { count, active, width, normalised: true, names });
    assert!(qwen.layers.iter().all(|layer| layer.feed_forward == experts && layer.window.is_none()));
    let fields = json!({"max_window_layers": 2, "sliding_window": 64, "use_sliding_window": true});
    assert_eq!(windows(&parse("Qwen3MoeForCausalLM", [2048, 6144, 4, 32, 4], fields)), [Some(64); 4]);
    let dense = |step: usize| {
        let fields = json!({"head_dim": 128, "decoder_sparse_step": step, "mlp_only_layers": [3]});
        let qwen = parse("Qwen3MoeForCausalLM", [2048, 6144, 6, 32, 4], fields);
        let is_dense =
            |layer: &usize| matches!(qwen.layers[*layer].feed_forward, FeedForward::Dense { width: 6144 });
        (0..6).filter(is_dense).collect::<Vec<_>>()
    };
    assert_eq!((dense(1), dense(2)), (vec![3], vec![0, 2, 3, 4]));
}

#[test]
fn gemma() {
    let fields = json!({
        "head_dim": 256, "query_pre_attn_scalar": 224, "sliding_window": 4096, "max_position_embeddings": 8192,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "cache_implementation": "hybrid",
    });
    let gemma = parse("Gemma2ForCausalLM", [3584, 14336, 42, 16, 8], fields);
    assert_eq!(
        (gemma.block.attention_cap, gemma.logit_cap, gemma.tied_embeddings),
        (Some(50.0), Some(30.0), true)
    );
    assert_eq!((gemma.block.norms, gemma.block.norm_offset), (Norms::BeforeAndAfter, 1.0));
    assert_eq!(windows(&gemma)[..4], [Some(4096), None, Some(4096), None]);
    assert!((gemma.block.attention_scale - 224f32.powf(-0.5)).abs() < 1e-7);
    // Fields that older files lack or set to null.
    let fields = json!({"hidden_act": "gelu", "hidden_activation": null, "attn_logit_softcapping": null});
    let gemma = parse("Gemma2ForCausalLM", [2304, 9216, 2, 8, 4], fields);
    assert_eq!((gemma.block.activation, gemma.head_size), (Activation::GeluTanh, 256));
    assert_eq!((gemma.block.attention_cap, gemma.logit_cap), (None, Some(30.0)));
    let fields = json!({
        "head_dim": 256, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000, "rope_theta": 1000000,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 512, "sliding_window_pattern": 6,
        "attn_logit_softcapping": null, "final_logit_softcapping": null, "max_position_embeddings": 32768,
    });
    let gemma = parse("Gemma3ForCausalLM", [1152, 6912, 26, 4, 1], fields);
    let ropes: Vec<usize> = gemma.layers.iter().map(|layer| layer.rope).collect();
    assert_eq!(ropes[..7], [1, 1, 1, 1, 1, 0, 1]);
    assert_eq!(windows(&gemma)[4..6], [Some(512), None]);
    assert_eq!((gemma.ropes[0].theta, gemma.ropes[1].theta), (1e6, 10_000.0));
    let scalings = [&gemma.ropes[0].scaling, &gemma.ropes[1].scaling];
    assert_eq!(scalings, [&RopeScaling::Linear { factor: 8.0 }, &RopeScaling::None]);
    assert_eq!((gemma.block.attention_cap, gemma.logit_cap), (None, None));
    assert_eq!(gemma.embedding_scale, Some(1152f32.sqrt()));
}

#[test]
fn phi() {
    let divisors = |count: usize| vec![1.5; count];
    let fields = |partial: Value, count: usize| {
        json!({
            "partial_rotary_factor": partial, "max_position_embeddings": 131072, "sliding_window": 262144,
            "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {"type": "longrope", "short_factor": divisors(count), "long_factor": divisors(count)},
        })
    };
    let phi = parse("Phi3ForCausalLM", [3072, 8192, 32, 32, 32], fields(json!(null), 48));
    assert_eq!((phi.block.projections, phi.head_size, phi.ropes[0].rotary), (Projections::Fused, 96, 96));
    assert_eq!((phi.short_length(), windows(&phi)), (Some(4096), vec![None; 32]));
    let RopeScaling::LongRope { attention_factor, .. } = phi.ropes[0].scaling else {
        panic!("{:?}", phi.ropes)
    };
    assert!((attention_factor - 1.190_238).abs() < 1e-5, "{attention_factor}");
    let mini = parse("Phi3ForCausalLM", [3072, 8192, 32, 24, 8], fields(json!(0.75), 48));
    assert_eq!((mini.head_size, mini.ropes[0].rotary), (128, 96));
    let fields = json!({"max_position_embeddings": 4096, "sliding_window": 2047, "rope_scaling": null});
    let phi = parse("Phi3ForCausalLM", [3072, 8192, 32, 32, 32], fields);
    assert_eq!((windows(&phi)[31], phi.short_length(), phi.norm_epsilon), (Some(2047), None, 1e-5));
}

#[test]
fn mixtral_olmo_and_granite() {
    let fields =
        json!({"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null, "rope_theta": 1e6});
    let mixtral = parse("MixtralForCausalLM", [4096, 14336, 32, 32, 8], fields);
    let (count, active, width, names) = (8, 2, 14336, ExpertNames::Mixtral);
    let experts = FeedForward::Experts(ExpertConfig { count, active, width, normalised: true, names });
    assert_eq!((&mixtral.layers[31].feed_forward, mixtral.layers[31].window), (&experts, None));
    let olmo = parse("Olmo2ForCausalLM", [4096, 11008, 32, 32, 32], json!({"rope_theta": 500000}));
    assert_eq!((olmo.block.norms, olmo.block.query_key_norm), (Norms::After, QueryKeyNorm::Whole));
    let fields = json!({
        "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "logits_scaling": 8.0,
        "residual_multiplier": 0.22, "rope_theta": 5000000.0, "tie_word_embeddings": true,
    });
    let granite = parse("GraniteForCausalLM", [2048, 8192, 40, 32, 8], fields);
    let scales = [granite.embedding_scale, granite.logit_divisor, granite.block.residual_scale];
    assert_eq!(scales, [Some(12.0), Some(8.0), Some(0.22)]);
    assert_eq!(granite.block.attention_scale, 0.015625);
    assert!(!granite.is_plain() && !mixtral.is_plain() && !olmo.is_plain());
    // An absent window has the default of Mistral's configuration class; with `null`, attention has no window.
    let mistral = |fields: Value| parse("MistralForCausalLM", [4096, 14336, 32, 32, 8], fields);
    assert_eq!(mistral(json!({"max_position_embeddings": 32768})).layers[0].window, Some(4096));
    assert_eq!(mistral(json!({"sliding_window": null})).layers[0].window, None);
    assert!(mistral(json!({})).is_plain());
}
