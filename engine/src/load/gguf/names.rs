//! Maps GGUF tensor names to Hugging Face's, including the different row order of attention matrices.

use crate::load::tensors::{EMBEDDING, HEAD, NORM};

/// Hugging Face's name of a Llama tensor, and whether the rows of each head are in a different order from Hugging Face's:
/// the converter interleaves the two halves that are rotated together. `None` for tensors that the model does not have.
pub(super) fn hugging_face(name: &str) -> Option<(String, bool)> {
    match name {
        "token_embd.weight" => return Some((EMBEDDING.to_owned(), false)),
        "output_norm.weight" => return Some((NORM.to_owned(), false)),
        "output.weight" => return Some((HEAD.to_owned(), false)),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let (part, turned) = match part.strip_suffix(".weight")? {
        "attn_norm" => ("input_layernorm", false),
        "attn_q" => ("self_attn.q_proj", true),
        "attn_k" => ("self_attn.k_proj", true),
        "attn_v" => ("self_attn.v_proj", false),
        "attn_output" => ("self_attn.o_proj", false),
        "ffn_norm" => ("post_attention_layernorm", false),
        "ffn_gate" => ("mlp.gate_proj", false),
        "ffn_up" => ("mlp.up_proj", false),
        "ffn_down" => ("mlp.down_proj", false),
        _ => return None,
    };
    Some((format!("model.layers.{layer}.{part}.weight"), turned))
}

/// The row in the file for a row in Hugging Face's order, for heads of `size` rows. Hugging Face rotates the
/// first half of a head's rows with the second half; the file stores each pair of rows adjacently.
pub(super) fn stored_row(row: usize, size: usize) -> usize {
    let (head, within) = (row / size, row % size);
    let (half, pair) = (within / (size / 2), within % (size / 2));
    head * size + 2 * pair + half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hugging_face() {
        let named = |name: &str| hugging_face(name);
        let query = "model.layers.11.self_attn.q_proj.weight".to_owned();
        assert_eq!(named("blk.11.attn_q.weight"), Some((query, true)));
        assert_eq!(named("output.weight"), Some(("lm_head.weight".to_owned(), false)));
        for other in
            ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.x.attn_q.weight", "blk.0.ffn_gate_exps.weight"]
        {
            assert_eq!(named(other), None, "{other}");
        }
    }

    /// Reverts the converter's `reshape(heads, 2, size / 2).swapaxes(1, 2)`.
    #[test]
    fn rows_go_back_to_their_halves() {
        let (heads, size) = (3, 8);
        let mut stored = Vec::new();
        for head in 0..heads {
            for pair in 0..size / 2 {
                stored.extend([0, 1].map(|half| head * size + half * size / 2 + pair));
            }
        }
        let back: Vec<usize> = (0..heads * size).map(|row| stored[stored_row(row, size)]).collect();
        assert_eq!(back, (0..heads * size).collect::<Vec<_>>());
    }
}
