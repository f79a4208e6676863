//! GGUF tensor names and row order of the parts of a model, as llama.cpp's converter writes them
//! (<https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py>).

use crate::load::block::Norms;
use crate::load::tensors::{Part, Place, Suffix};

/// GGUF's name of a tensor. The experts of a layer share one tensor.
pub(super) fn stored_name(place: Place, suffix: Suffix, norms: Norms) -> String {
    let suffix = match suffix {
        Suffix::Weight => "weight",
        Suffix::Bias => "bias",
    };
    match place {
        Place::Embedding => format!("token_embd.{suffix}"),
        Place::FinalNorm => format!("output_norm.{suffix}"),
        Place::Head => format!("output.{suffix}"),
        Place::Layer(layer, part) => format!("blk.{layer}.{}.{suffix}", part_name(part, norms)),
    }
}

fn part_name(part: Part, norms: Norms) -> &'static str {
    match part {
        Part::InputNorm => "attn_norm",
        // Llama names the norm before its feed-forward after the one that precedes it.
        Part::PostAttentionNorm if norms == Norms::Before => "ffn_norm",
        Part::PostAttentionNorm => "post_attention_norm",
        Part::PreFeedForwardNorm => "ffn_norm",
        Part::PostFeedForwardNorm => "post_ffw_norm",
        Part::QueryNorm => "attn_q_norm",
        Part::KeyNorm => "attn_k_norm",
        Part::Query => "attn_q",
        Part::Key => "attn_k",
        Part::Value => "attn_v",
        Part::QueryKeyValue => "attn_qkv",
        Part::AttentionOutput => "attn_output",
        Part::Gate => "ffn_gate",
        Part::Up | Part::GateUp => "ffn_up",
        Part::Down => "ffn_down",
        Part::Router => "ffn_gate_inp",
        Part::ExpertGate(_) => "ffn_gate_exps",
        Part::ExpertUp(_) => "ffn_up_exps",
        Part::ExpertDown(_) => "ffn_down_exps",
    }
}

/// The number of an expert's tensor, and its name in files from before April 2024, which have a tensor for each expert.
pub(super) fn expert(place: Place) -> Option<(usize, String)> {
    let Place::Layer(layer, part) = place else { return None };
    let (name, expert) = match part {
        Part::ExpertGate(expert) => ("gate", expert),
        Part::ExpertUp(expert) => ("up", expert),
        Part::ExpertDown(expert) => ("down", expert),
        _ => return None,
    };
    Some((expert, format!("blk.{layer}.ffn_{name}.{expert}.weight")))
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
    fn names_are_those_of_the_converter() {
        let named = |part, norms| stored_name(Place::Layer(11, part), Suffix::Weight, norms);
        assert_eq!(named(Part::Query, Norms::Before), "blk.11.attn_q.weight");
        assert_eq!(named(Part::PostAttentionNorm, Norms::Before), "blk.11.ffn_norm.weight");
        assert_eq!(named(Part::PostAttentionNorm, Norms::After), "blk.11.post_attention_norm.weight");
        assert_eq!(named(Part::PreFeedForwardNorm, Norms::BeforeAndAfter), "blk.11.ffn_norm.weight");
        assert_eq!(named(Part::ExpertDown(3), Norms::Before), "blk.11.ffn_down_exps.weight");
        let bias = stored_name(Place::Layer(0, Part::Value), Suffix::Bias, Norms::Before);
        assert_eq!(bias, "blk.0.attn_v.bias");
        let old = expert(Place::Layer(2, Part::ExpertUp(5)));
        assert_eq!(old, Some((5, "blk.2.ffn_up.5.weight".to_owned())));
        assert_eq!(expert(Place::Layer(2, Part::Up)), None);
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
