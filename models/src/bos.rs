//! [`BosCheck`]: warns about prompts without the BOS token that a model's tokenizer adds to texts, or with two.
//!
//! Prompts are encoded as they are, without additions, so a BOS comes from the prompt template. Lumos's own layout has
//! none, as its modules were trained; models of the Gemma families degrade without it in any layout.

use std::sync::atomic::{AtomicBool, Ordering};

use lumos_engine::Tokenizer;

use super::chat::ChatTemplate;

/// Families whose models need a BOS.
const NEEDS_BOS: &str = "Gemma";

/// How a model's prompts should begin.
#[derive(Debug)]
pub(crate) struct BosCheck {
    /// The BOS that the tokenizer adds to a text, if it adds one.
    bos: Option<String>,
    /// Whether prompts in Lumos's layout need it, too.
    is_needed: bool,
    warned: AtomicBool,
}

impl BosCheck {
    /// Returns the check for a model of an architecture.
    pub(crate) fn new(tokenizer: &Tokenizer, chat: &ChatTemplate, architecture: &str) -> Self {
        let is_needed = architecture.starts_with(NEEDS_BOS);
        Self {
            bos: tokenizer.leading_token().or_else(|| chat.added_bos(is_needed)),
            is_needed,
            warned: AtomicBool::new(false),
        }
    }

    /// Warns once per model if the prompt does not begin with exactly one BOS. `is_lumos_layout`: the prompt is not
    /// rendered by a template.
    pub(crate) fn check(&self, prompt: &str, is_lumos_layout: bool) {
        if let Some(problem) = self.problem(prompt, is_lumos_layout)
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{problem}");
        }
    }

    /// Describes the BOS tokens with which a prompt begins.
    pub(crate) fn describe(&self, prompt: &str) -> String {
        let Some(bos) = self.bos.as_deref() else {
            return "none; the model's tokenizer adds none to texts".to_owned();
        };
        let mut rest = prompt;
        let mut count = 0;
        while let Some(after) = rest.strip_prefix(bos) {
            (rest, count) = (after, count + 1);
        }
        match count {
            0 => format!(
                "none; the model's tokenizer adds `{bos}` to texts, but prompts are encoded as they are"
            ),
            1 => format!("`{bos}`, written by the template"),
            count => format!("`{bos}`, {count} times"),
        }
    }

    fn problem(&self, prompt: &str, is_lumos_layout: bool) -> Option<String> {
        let bos = self.bos.as_deref()?;
        match prompt.strip_prefix(bos) {
            None if is_lumos_layout && !self.is_needed => None,
            None => Some(format!(
                "prompts begin without the BOS token `{bos}`, which the model's tokenizer adds to texts; hint: pass \
                 --prompt-template chat, or a template file that begins with {{{{ bos_token }}}}"
            )),
            Some(rest) if rest.starts_with(bos) => Some(format!(
                "prompts begin with two BOS tokens `{bos}`; hint: pass a template file that writes {{{{ bos_token }}}} \
                 once"
            )),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn tokenizer(adds: bool) -> Tokenizer {
        let added = json!([{"id": 1, "content": "<bos>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}]);
        let processor = json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [1], "tokens": ["<bos>"]}}});
        let json = json!({"version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": null,
            "post_processor": if adds { processor } else { Value::Null }, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0, "<bos>": 1}, "unk_token": "a"}});
        Tokenizer::from_json(json.to_string().as_bytes(), Path::new("tokenizer.json")).unwrap()
    }

    #[test]
    fn prompts_have_the_bos_that_the_tokenizer_adds() {
        let chat = ChatTemplate::plain();
        let llama = BosCheck::new(&tokenizer(true), &chat, "LlamaForCausalLM");
        assert_eq!(llama.problem("<bos>a", false), None);
        assert!(llama.problem("a", false).unwrap().contains("without the BOS token `<bos>`"));
        assert!(llama.problem("<bos><bos>a", false).unwrap().contains("two BOS tokens `<bos>`"));
        assert_eq!(llama.problem("a", true), None, "Lumos's layout has no BOS");
        let gemma = BosCheck::new(&tokenizer(true), &chat, "Gemma2ForCausalLM");
        assert!(gemma.problem("a", true).unwrap().contains("{{ bos_token }}"));
        assert_eq!(gemma.problem("<bos>a", true), None);
        let qwen = BosCheck::new(&tokenizer(false), &chat, "Qwen2ForCausalLM");
        assert_eq!(qwen.problem("a", false), None);
        assert!(qwen.describe("<bos>a").starts_with("none; the model's tokenizer adds none"));
        assert!(llama.describe("a").starts_with("none; the model's tokenizer adds `<bos>`"));
        assert_eq!(llama.describe("<bos>a"), "`<bos>`, written by the template");
        assert_eq!(llama.describe("<bos><bos>a<bos>"), "`<bos>`, 2 times");
    }

    #[test]
    fn a_model_is_warned_about_once() {
        let check = BosCheck::new(&tokenizer(true), &ChatTemplate::plain(), "LlamaForCausalLM");
        check.check("<bos>a", false);
        assert!(!check.warned.load(Ordering::Relaxed));
        check.check("a", false);
        assert!(check.warned.load(Ordering::Relaxed));
    }
}
