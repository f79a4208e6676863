//! Renders conversations as text with the model's own template: `chat_template.jinja`, or `chat_template` in
//! `tokenizer_config.json` or in the metadata of a GGUF file, in the format of Hugging Face's tokenizers
//! (<https://huggingface.co/docs/transformers/chat_templating>).

use std::io;
use std::path::Path;

use lumos_engine::{LoadError, StoredChat, read_configuration};
use lumos_tasks::{Message, PromptTemplate, TemplatedPrompt};
use minijinja::{Error, context};
use serde_json::Value;

use super::template::Template;

/// Template for models without one: the format that Lumos's own models are trained on.
const PLAIN: &str = "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content | trim }}\n{% endfor %}\
                     {{ '<|assistant|>\n' }}";

/// The template of [`PromptTemplate::Chatml`].
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{{ '<|im_start|>assistant\n' }}";
/// The template of [`PromptTemplate::Llama3`].
const LLAMA_3: &str = "<|begin_of_text|>{% for message in messages %}<|start_header_id|>{{ message.role }}\
                       <|end_header_id|>\n\n{{ message.content | trim }}<|eot_id|>{% endfor %}\
                       {{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}";

/// Chat template of a model.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    template: Template,
    /// Whether the model has this template, rather than none.
    is_own: bool,
    bos_token: String,
    eos_token: String,
    /// `add_bos_token` of tokenizer_config.json.
    adds_bos: Option<bool>,
}

impl ChatTemplate {
    /// Returns the template of Lumos's own models.
    pub(super) fn plain() -> Self {
        // The constant is valid, as the tests show.
        let plain = Self::parse(PLAIN.to_owned(), &Value::Null)
            .unwrap_or_else(|_| unreachable!("the plain template is valid"));
        Self { is_own: false, ..plain }
    }

    /// Returns the template of the first folder that has one, or the plain template.
    ///
    /// # Errors
    /// If a file cannot be read or its template is invalid.
    pub(super) fn of_folders(folders: &[&Path]) -> Result<Self, LoadError> {
        for folder in folders {
            let found = Self::in_folder(folder)
                .map_err(|source| LoadError::FolderUnreadable { folder: folder.to_path_buf(), source })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(Self::plain())
    }

    /// Returns the template of a folder's model, if it has one.
    fn in_folder(folder: &Path) -> io::Result<Option<Self>> {
        let invalid = |file: &str, error: &dyn std::fmt::Display| {
            let message = format!("{}: {error}", folder.join(file).display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let configuration = match optional(&folder.join("tokenizer_config.json"))? {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| invalid("tokenizer_config.json", &error))?
            }
            None => Value::Null,
        };
        let (file, template) = match optional(&folder.join("chat_template.jinja"))? {
            Some(template) => ("chat_template.jinja", template),
            None => match template_in(&configuration) {
                Some(template) => ("tokenizer_config.json", template),
                None => return Ok(None),
            },
        };
        Self::parse(template, &configuration).map(Some).map_err(|error| invalid(file, &error))
    }

    /// Returns the template in a GGUF file, or the plain template if it has none.
    ///
    /// # Errors
    /// If the file cannot be read or its template is invalid.
    pub(super) fn in_gguf(file: &Path) -> Result<Self, LoadError> {
        let Some(stored) = StoredChat::read(file)? else { return Ok(Self::plain()) };
        Self::of_gguf(stored).map_err(|error| LoadError::InvalidConfig {
            file: file.to_owned(),
            reason: format!("tokenizer.chat_template: {error}"),
        })
    }

    fn of_gguf(stored: StoredChat) -> Result<Self, Error> {
        let StoredChat { template, bos_token, eos_token } = stored;
        Ok(Self { bos_token, eos_token, ..Self::parse(template, &Value::Null)? })
    }

    fn parse(template: String, configuration: &Value) -> Result<Self, Error> {
        let template = Template::new(template)?;
        // A special token is a string, or an object with a `content` string.
        let token = |name: &str| {
            let token = &configuration[name];
            token.as_str().or_else(|| token["content"].as_str()).unwrap_or_default().to_owned()
        };
        let adds_bos = configuration["add_bos_token"].as_bool();
        let (bos_token, eos_token) = (token("bos_token"), token("eos_token"));
        Ok(Self { template, is_own: true, bos_token, eos_token, adds_bos })
    }

    /// The BOS token, if tokenizer_config.json says that the tokenizer adds it; `usual` applies if it does not say.
    pub(crate) fn added_bos(&self, usual: bool) -> Option<String> {
        let is_added = self.adds_bos.unwrap_or(usual) && !self.bos_token.is_empty();
        is_added.then(|| self.bos_token.clone())
    }

    /// Checks that the model has a template of its own.
    ///
    /// # Errors
    /// Otherwise. The error is a message.
    pub(crate) fn check_own(&self) -> Result<(), String> {
        let hint = "pass --prompt-template chatml, llama-3 or the path of a template";
        if self.is_own { Ok(()) } else { Err(format!("the model has no chat template; hint: {hint}")) }
    }

    /// Renders the prompt for the assistant's next reply.
    ///
    /// # Errors
    /// If the template rejects the conversation, for example two messages of one role in succession, or a
    /// system message.
    pub(crate) fn render(&self, messages: &[Message]) -> Result<String, String> {
        self.render_with(messages, minijinja::Value::UNDEFINED)
    }

    /// As [`ChatTemplate::render`], with the variable `enable_thinking`.
    fn render_with(&self, messages: &[Message], enable_thinking: minijinja::Value) -> Result<String, String> {
        let given: usize =
            messages.iter().map(|message| message.content.len() + message.role.as_str().len()).sum();
        let messages: Vec<minijinja::Value> = messages
            .iter()
            .map(|Message { role, content }| context! { role => role.as_str(), content => content.as_str() })
            .collect();
        let context = context! {
            messages,
            bos_token => self.bos_token.as_str(),
            eos_token => self.eos_token.as_str(),
            add_generation_prompt => true,
            enable_thinking,
        };
        let rendered = self.template.render(context, given);
        rendered.map_err(|error| format!("the chat template rejected the conversation: {error}"))
    }
}

impl ChatTemplate {
    /// As [`ChatTemplate::render`], without thoughts: a reply of one line has no room for them. If the template rejects
    /// instructions, they are a part of the user's first message.
    fn render_any(&self, messages: &[Message]) -> Result<String, String> {
        let render = |messages: &[Message]| self.render_with(messages, false.into());
        let rejected = match render(messages) {
            Ok(text) => return Ok(text),
            Err(rejected) => rejected,
        };
        match messages {
            [system, user, rest @ ..] if system.role == "system" && user.role == "user" => {
                let content = format!("{}\n\n{}", system.content, user.content);
                let first = Message { role: user.role.clone(), content };
                render(&[&[first], rest].concat())
            }
            _ => Err(rejected),
        }
    }
}

/// Reads a text file, if it exists. Errors name it.
fn optional(path: &Path) -> io::Result<Option<String>> {
    let text = read_configuration(path).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Returns the only template, or the one named `default`.
fn template_in(configuration: &Value) -> Option<String> {
    let template = &configuration["chat_template"];
    let named = || {
        let default = template.as_array()?.iter().find(|one| one["name"] == "default")?;
        default["template"].as_str()
    };
    template.as_str().or_else(named).map(str::to_owned)
}

/// The text of a conversation, and the texts at which its reply ends, in addition to a newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenderedPrompt {
    pub(crate) text: String,
    pub(crate) ends: Vec<String>,
}

/// Renders a conversation with its template. `own` is the model's.
///
/// # Errors
/// If the model has no template but needs it, or the template rejects the conversation. The error is a message.
pub(crate) fn rendered(prompt: &TemplatedPrompt, own: &ChatTemplate) -> Result<RenderedPrompt, String> {
    let parsed = |text: &str| -> Result<ChatTemplate, String> {
        let template = Template::new(text.to_owned()).map_err(|error| format!("prompt template: {error}"))?;
        let (bos_token, eos_token) = (own.bos_token.clone(), own.eos_token.clone());
        Ok(ChatTemplate { template, is_own: true, bos_token, eos_token, adds_bos: own.adds_bos })
    };
    let (rendered, end) = match &prompt.template {
        PromptTemplate::Tulu => return Ok(RenderedPrompt { text: prompt.text.clone(), ends: Vec::new() }),
        PromptTemplate::Chatml => (parsed(CHATML)?.render(&prompt.messages), "<|im_end|>"),
        PromptTemplate::Llama3 => (parsed(LLAMA_3)?.render(&prompt.messages), "<|eot_id|>"),
        PromptTemplate::Chat => {
            own.check_own()?;
            (own.render_any(&prompt.messages), own.eos_token.as_str())
        }
        PromptTemplate::File(text) => (parsed(text)?.render_any(&prompt.messages), own.eos_token.as_str()),
    };
    let ends = Some(end.to_owned()).filter(|end| !end.is_empty()).into_iter().collect();
    Ok(RenderedPrompt { text: rendered? + &prompt.reply_start, ends })
}

/// Checks a prompt template that a user gives: it compiles, and renders a short conversation.
///
/// # Errors
/// Otherwise. The error is a message.
pub fn check_prompt_template(text: &str) -> Result<(), String> {
    let message = |role: &str| Message { role: role.to_owned(), content: "text".to_owned() };
    let prompt = TemplatedPrompt {
        text: String::new(),
        messages: ["user", "assistant", "user"].map(message).to_vec(),
        reply_start: String::new(),
        template: PromptTemplate::File(text.into()),
    };
    let rendered = rendered(&prompt, &ChatTemplate::plain())?;
    let shown = rendered.text.matches("text").count();
    if shown >= 3 { Ok(()) } else { Err("the template does not write all messages".to_owned()) }
}

/// Renders a conversation with a template from a model folder. Entry point of a fuzz target.
///
/// # Errors
/// If the template is invalid or rejects the conversation.
pub fn fuzz_chat(template: &str, content: &str) -> Result<String, String> {
    let template =
        ChatTemplate::parse(template.to_owned(), &Value::Null).map_err(|error| error.to_string())?;
    let message = |role: &str| Message { role: role.to_owned(), content: content.to_owned() };
    template.render(&["system", "user", "assistant", "user"].map(message))
}

#[cfg(test)]
#[path = "chat_family_tests.rs"]
mod family_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(turns: &[(&str, &str)]) -> Vec<Message> {
        turns
            .iter()
            .map(|(role, text)| Message { role: (*role).to_owned(), content: (*text).to_owned() })
            .collect()
    }

    #[test]
    fn models_without_a_template_get_the_layout_of_lumos() {
        let folder = tempfile::tempdir().unwrap();
        let template = ChatTemplate::of_folders(&[folder.path()]).unwrap();
        let text = template.render(&conversation(&[("system", "Be brief. "), ("user", "Who?")])).unwrap();
        assert_eq!(text, "<|system|>\nBe brief.\n<|user|>\nWho?\n<|assistant|>\n");
    }

    #[test]
    fn a_folders_template_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let template = "{% for message in messages %}{% if message['role'] == 'user' %}\
                        {{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}\
                        {% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}\
                        {% else %}{{ raise_exception('no system messages') }}{% endif %}{% endfor %}";
        let configuration = serde_json::json!({
            "bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": template,
        });
        write("tokenizer_config.json", &configuration.to_string());
        let chat = ChatTemplate::of_folders(&[folder.path()]).unwrap();
        let turns = [("user", " a "), ("assistant", "b"), ("user", "c")];
        assert_eq!(
            chat.render(&conversation(&turns)).unwrap(),
            "<s>[INST] a [/INST] b</s><s>[INST] c [/INST]"
        );
        let refused = chat.render(&conversation(&[("system", "x")])).unwrap_err();
        assert!(refused.contains("no system messages"), "{refused}");
        // A separate file takes precedence.
        write("chat_template.jinja", "{{ messages[-1].content }}");
        let chat = ChatTemplate::of_folders(&[folder.path()]).unwrap();
        assert_eq!(chat.render(&conversation(&turns)).unwrap(), "c");
        write("chat_template.jinja", "{% for %}");
        let error = ChatTemplate::of_folders(&[folder.path()]).unwrap_err().to_string();
        assert!(error.contains("chat_template.jinja"), "{error}");
        let file = std::fs::File::create(folder.path().join("chat_template.jinja")).unwrap();
        file.set_len((16 << 20) + 1).unwrap();
        let error = ChatTemplate::of_folders(&[folder.path()]).unwrap_err().to_string();
        assert!(error.contains("chat_template.jinja: longer than 16777216 bytes"), "{error}");
    }

    #[test]
    fn the_template_of_a_gguf_file_is_used() {
        let stored = StoredChat {
            template: "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}".to_owned(),
            bos_token: "<s>".to_owned(),
            eos_token: "</s>".to_owned(),
        };
        let chat = ChatTemplate::of_gguf(stored.clone()).unwrap();
        assert_eq!(chat.render(&conversation(&[("user", "a")])).unwrap(), "<s>a</s>");
        assert!(ChatTemplate::of_gguf(StoredChat { template: "{% for %}".to_owned(), ..stored }).is_err());
    }

    fn prompt(template: PromptTemplate, turns: &[(&str, &str)]) -> TemplatedPrompt {
        let (text, reply_start) = ("<|user|>".to_owned(), "R1 = ".to_owned());
        TemplatedPrompt { text, messages: conversation(turns), reply_start, template }
    }

    #[test]
    fn conversations_are_rendered_in_every_layout() {
        let turns = [("system", "Be brief."), ("user", " a\nb"), ("assistant", "c"), ("user", "d")];
        let stored = StoredChat {
            template: "{% for message in messages %}({{ message.role }}:{{ message.content }}){% endfor %}"
                .to_owned(),
            bos_token: "<s>".to_owned(),
            eos_token: "</s>".to_owned(),
        };
        let own = ChatTemplate::of_gguf(stored).unwrap();
        let file =
            PromptTemplate::File("{{ bos_token }}{{ messages | length }}{{ add_generation_prompt }}".into());
        for (template, text, end) in [
            (
                PromptTemplate::Chatml,
                "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n a\nb<|im_end|>\n\
                 <|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\nR1 = ",
                "<|im_end|>",
            ),
            (
                PromptTemplate::Llama3,
                "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
                 <|start_header_id|>user<|end_header_id|>\n\na\nb<|eot_id|>\
                 <|start_header_id|>assistant<|end_header_id|>\n\nc<|eot_id|>\
                 <|start_header_id|>user<|end_header_id|>\n\nd<|eot_id|>\
                 <|start_header_id|>assistant<|end_header_id|>\n\nR1 = ",
                "<|eot_id|>",
            ),
            (PromptTemplate::Chat, "(system:Be brief.)(user: a\nb)(assistant:c)(user:d)R1 = ", "</s>"),
            (file, "<s>4TrueR1 = ", "</s>"),
        ] {
            let expected = RenderedPrompt { text: text.to_owned(), ends: vec![end.to_owned()] };
            assert_eq!(rendered(&prompt(template, &turns), &own), Ok(expected));
        }
        let without = rendered(&prompt(PromptTemplate::Chat, &turns), &ChatTemplate::plain()).unwrap_err();
        assert!(without.contains("no chat template") && without.contains("--prompt-template"), "{without}");
    }

    #[test]
    fn a_template_without_system_messages_gets_instructions_from_the_user() {
        let template = "{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no') }}\
                        {% endif %}[{{ message.content }}]{% endfor %}";
        let file = || PromptTemplate::File(template.into());
        let own = ChatTemplate::plain();
        let turns = [("system", "Be brief."), ("user", "a")];
        assert_eq!(rendered(&prompt(file(), &turns), &own).unwrap().text, "[Be brief.\n\na]R1 = ");
        let rejected = rendered(&prompt(file(), &[("user", "a"), ("system", "b")]), &own).unwrap_err();
        assert!(rejected.contains("rejected the conversation"), "{rejected}");
    }

    #[test]
    fn prompt_templates_of_users_are_checked() {
        assert_eq!(check_prompt_template("{% for m in messages %}{{ m.content }}{% endfor %}"), Ok(()));
        for (template, why) in [
            ("{% for %}", "prompt template: "),
            ("{{ messages[0].content }}", "does not write all messages"),
            ("{{ raise_exception('never') }}", "never"),
            ("{{ 'x' * 9999999999 }}", "prompt template: "),
        ] {
            let error = check_prompt_template(template).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let deep = format!("{{{{ {}messages }}}}", "not ".repeat(10_000));
        let error = check_prompt_template(&deep).unwrap_err();
        assert!(error.contains("a tag has more than 300"), "{error}");
    }

    #[test]
    fn a_template_ends() {
        let template =
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}".to_owned();
        let chat = ChatTemplate::parse(template, &Value::Null).unwrap();
        assert!(chat.render(&[]).is_err());
    }

    #[test]
    fn a_template_builds_no_gigabytes() {
        let template = "{% set ns = namespace(x=messages[0].content) %}{% for i in range(40) %}\
                        {% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}";
        let chat = ChatTemplate::parse(template.to_owned(), &Value::Null).unwrap();
        let error = chat.render(&conversation(&[("user", "aaaaaaaa")])).unwrap_err();
        assert!(error.contains("builds more than"), "{error}");
    }
}
