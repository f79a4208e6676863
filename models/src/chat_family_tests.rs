//! Templates with the constructs of published ones, family by family, and what they write.

use lumos_tasks::{Message, PromptTemplate, TemplatedPrompt};
use serde_json::json;

use super::{ChatTemplate, rendered};

/// Messages of a conversation: roles by their first letter.
const TALK: [(&str, &str); 3] = [("user", "Q1 "), ("assistant", "A1"), ("user", "Q2")];
const INSTRUCTED: [(&str, &str); 2] = [("system", "S"), ("user", "Q1")];

fn text(template: &str, turns: &[(&str, &str)]) -> Result<String, String> {
    let configuration = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}});
    let own = ChatTemplate::parse(template.to_owned(), &configuration).unwrap();
    let message =
        |(role, content): &(&str, &str)| Message { role: (*role).to_owned(), content: (*content).to_owned() };
    let prompt = TemplatedPrompt {
        text: String::new(),
        messages: turns.iter().map(message).collect(),
        reply_start: String::new(),
        template: PromptTemplate::Chat,
    };
    rendered(&prompt, &own).map(|rendered| rendered.text)
}

/// Llama 3.1 and later: a date, a header for the system, tools as JSON.
#[test]
fn llama() {
    let template = "{{- bos_token }}
{%- if not date is defined %}
    {%- if strftime_now is defined %}
        {%- set date = strftime_now(\"%d %b %Y\") %}
    {%- else %}
        {%- set date = \"never\" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set instructions = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set instructions = \"\" %}
{%- endif %}
{{- \"[system]Today: \" + date + \"\\n\" + instructions }}
{%- if tools is not none and tools is defined %}{{- tools | tojson(indent=4) }}{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '[' + message['role'] + ']' + message['content'] | trim }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '[assistant]' }}{%- endif %}
";
    let date = "[system]Today: 26 Jul 2024\n";
    assert_eq!(text(template, &TALK).unwrap(), format!("<s>{date}[user]Q1[assistant]A1[user]Q2[assistant]"));
    assert_eq!(text(template, &INSTRUCTED).unwrap(), format!("<s>{date}S[user]Q1[assistant]"));
}

/// Qwen 2.5 inserts instructions of its own; no BOS.
#[test]
fn qwen_2_5() {
    let template = "{%- if tools %}
    {{- tools | map(attribute='name') | join(', ') }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '[system]' + messages[0]['content'] }}
{%- else %}
    {{- '[system]Help.' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) or (message.role == \"assistant\" and not message.tool_calls) %}
        {{- '[' + message.role + ']' + message.content + '\\n' }}
    {%- elif message.role == \"tool\" and (loop.index0 == 0 or messages[loop.index0 - 1].role != \"tool\") %}
        {{- 'tool' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}
{%- endif %}
";
    assert_eq!(
        text(template, &TALK).unwrap(),
        "[system]Help.[user]Q1 \n[assistant]A1\n[user]Q2\n[assistant]"
    );
    assert_eq!(text(template, &INSTRUCTED).unwrap(), "[system]S[user]Q1\n[assistant]");
}

/// Qwen 3 searches backwards for the last question, removes thoughts of earlier replies, and writes empty thoughts if
/// thinking is disabled.
#[test]
fn qwen_3() {
    let template = "{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.last and (loop.last or thoughts) %}{{- thoughts.strip('\\n') }}{%- endif %}
    {%- endif %}
    {{- '[' + message.role + ']' + content }}
{%- endfor %}
{{- '[last ' ~ ns.last ~ '][assistant]' }}
{%- if enable_thinking is defined and enable_thinking is false %}
    {{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
";
    let talk = [("user", "Q1"), ("assistant", "<think>\nwhy\n</think>\n\nA1"), ("user", "Q2")];
    assert_eq!(
        text(template, &talk).unwrap(),
        "[user]Q1[assistant]A1[user]Q2[last 2][assistant]<think>\n\n</think>\n\n"
    );
}

/// Gemma 2 rejects instructions, and demands that roles alternate.
#[test]
fn gemma_2() {
    let template = "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}\
        {% for message in messages %}\
        {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}\
        {% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
        {{ '[' + role + ']' + message['content'] | trim + '\n' }}{% endfor %}\
        {% if add_generation_prompt %}{{'[model]\n'}}{% endif %}";
    assert_eq!(text(template, &TALK).unwrap(), "<s>[user]Q1\n[model]A1\n[user]Q2\n[model]\n");
    assert_eq!(text(template, &INSTRUCTED).unwrap(), "<s>[user]S\n\nQ1\n[model]\n");
    let rejected = text(template, &[("user", "a"), ("user", "b")]).unwrap_err();
    assert!(rejected.contains("roles must alternate"), "{rejected}");
}

/// Gemma 3 writes instructions before the user's first message, whose content is a text or a list of parts.
#[test]
fn gemma_3() {
    let template = "{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '\n' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '\n' -%}
    {%- endif -%}
    {%- set talk = messages[1:] -%}
{%- else -%}
    {%- set prefix = '' -%}
    {%- set talk = messages -%}
{%- endif -%}
{%- for message in talk -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '[' + role + ']' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ raise_exception('invalid content') }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '[model]' }}{%- endif -%}
";
    assert_eq!(text(template, &TALK).unwrap(), "<s>[user]Q1[model]A1[user]Q2[model]");
    assert_eq!(text(template, &INSTRUCTED).unwrap(), "<s>[user]S\nQ1[model]");
}

/// Granite names tools and documents, and writes a date.
#[test]
fn granite() {
    let template = "{%- if messages[0]['role'] == 'system' %}
    {%- set instructions = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set instructions = 'Today: ' ~ strftime_now('%B %d, %Y') ~ '.' %}
    {%- if tools and documents %}{%- set instructions = instructions + ' Tools.' %}
    {%- elif thinking %}{%- set instructions = instructions + ' Think.' %}{%- endif %}
    {%- if 'citations' in controls %}{%- set instructions = instructions + ' Cite.' %}{%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '[system]' + instructions }}
{%- if documents %}{%- for document in documents %}{{- document['text'] }}{%- endfor %}{%- endif %}
{%- for message in loop_messages %}
    {{- '[' + message['role'] + ']' + message['content'] }}
    {%- if loop.last and add_generation_prompt %}{{- '[assistant]' }}{%- endif %}
{%- endfor %}";
    let date = "[system]Today: July 26, 2024.";
    assert_eq!(text(template, &TALK).unwrap(), format!("{date}[user]Q1 [assistant]A1[user]Q2[assistant]"));
    assert_eq!(text(template, &INSTRUCTED).unwrap(), "[system]S[user]Q1[assistant]");
}

/// Phi-3 has one branch per role and ends with its end of sequence if nothing is generated.
#[test]
fn phi_3() {
    let template = "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}\
        {{'[system]\n' + message['content'] + '[end]\n'}}{% elif message['role'] == 'user' %}\
        {{'[user]\n' + message['content'] + '[end]\n'}}{% elif message['role'] == 'assistant' %}\
        {{'[assistant]\n' + message['content'] + '[end]\n'}}{% endif %}{% endfor %}\
        {% if add_generation_prompt %}{{ '[assistant]\n' }}{% else %}{{ eos_token }}{% endif %}";
    assert_eq!(
        text(template, &TALK).unwrap(),
        "[user]\nQ1 [end]\n[assistant]\nA1[end]\n[user]\nQ2[end]\n[assistant]\n"
    );
    assert_eq!(text(template, &INSTRUCTED).unwrap(), "[system]\nS[end]\n[user]\nQ1[end]\n[assistant]\n");
}

/// Mistral selects messages by tests, counts in a namespace, and writes instructions into the last user's message.
#[test]
fn mistral() {
    let template = "{%- if messages[0][\"role\"] == \"system\" %}
    {%- set instructions = messages[0][\"content\"] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set users = loop_messages | selectattr(\"role\", \"equalto\", \"user\") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == \"tool\" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message[\"role\"] == \"user\") != (ns.index % 2 == 0) %}
            {{- raise_exception(\"roles must alternate\") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message[\"role\"] == \"user\" %}
        {%- if tools is not none and (message == users[-1]) %}{{- tools | tojson }}{%- endif %}
        {%- if loop.last and instructions is defined %}
            {{- \"[INST] \" + instructions + \"\\n\\n\" + message[\"content\"] + \"[/INST]\" }}
        {%- else %}
            {{- \"[INST] \" + message[\"content\"].strip() + \"[/INST]\" }}
        {%- endif %}
    {%- elif message[\"role\"] == \"assistant\" %}
        {{- \" \" + message[\"content\"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception(\"unknown role\") }}
    {%- endif %}
{%- endfor %}
";
    assert_eq!(text(template, &TALK).unwrap(), "<s>[INST] Q1[/INST] A1</s>[INST] Q2[/INST]");
    assert_eq!(text(template, &INSTRUCTED).unwrap(), "<s>[INST] S\n\nQ1[/INST]");
}

/// Messages are written as JSON in the order of transformers.
#[test]
fn messages_as_json() {
    let json = r#"[{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"}]"#;
    assert_eq!(text("{{ messages | tojson }}", &INSTRUCTED).unwrap(), json);
}
