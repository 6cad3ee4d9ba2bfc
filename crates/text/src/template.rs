//! Renders conversations as prompts with a model's Jinja chat template, like Hugging Face transformers.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use minijinja::{Environment, Error, ErrorKind, Value, context, syntax::SyntaxConfig, value::Serde};
use serde::Serialize;

use crate::{TextError, TokenizerConfig};

const NAME: &str = "chat";

pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub role: String,
    pub content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

pub struct Conversation<'a> {
    pub messages: &'a [Message],
    /// Opens the assistant's turn, so that the model answers instead of continuing the last message.
    pub add_generation_prompt: bool,
    /// The time, whose date in UTC some templates contain.
    pub now: SystemTime,
}

impl ChatTemplate {
    /// A chat_template.jinja comes before the template inside tokenizer_config.json; `None` when there is neither.
    pub fn from_files(config: &TokenizerConfig, chat_template_jinja: Option<&str>) -> Result<Option<Self>, TextError> {
        let (file, source) = match (chat_template_jinja, &config.chat_template) {
            (Some(source), _) => ("chat_template.jinja", source),
            (None, Some(source)) => ("tokenizer_config.json, field chat_template", source.as_str()),
            (None, None) => return Ok(None),
        };
        Self::new(file, source, config.bos_token.as_deref(), config.eos_token.as_deref()).map(Some)
    }

    /// The template in a GGUF file; `bos` and `eos` are the texts of its special tokens.
    pub fn from_gguf(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, TextError> {
        Self::new("tokenizer.chat_template", source, bos, eos)
    }

    fn new(file: &'static str, source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, TextError> {
        let mut environment = environment().map_err(|error| TextError::file(file, error))?;
        environment
            .add_template_owned(NAME, without_generation_marks(source))
            .map_err(|error| TextError::file(file, error))?;
        let text = |token: Option<&str>| token.unwrap_or_default().to_owned();
        Ok(Self { environment, bos_token: text(bos), eos_token: text(eos) })
    }

    pub fn render(&self, conversation: &Conversation<'_>) -> Result<String, TextError> {
        // Fails only after the year 9999.
        let now = Timestamp::try_from(conversation.now).unwrap_or_default().to_zoned(TimeZone::UTC);
        let variables = context! {
            messages => Value::from(Serde(conversation.messages)),
            add_generation_prompt => conversation.add_generation_prompt,
            bos_token => self.bos_token.as_str(),
            eos_token => self.eos_token.as_str(),
            tools => (),
            documents => (),
            strftime_now => Value::from_function(move |format: &str| now.strftime(format).to_string()),
        };
        self.environment.get_template(NAME).and_then(|template| template.render(variables)).map_err(refusal)
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: &str| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message.to_owned())))
    });
    environment.add_filter("tojson", to_json);
    Ok(environment)
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn refusal(error: Error) -> TextError {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TextError::Refused(message.clone());
        }
        source = cause.source();
    }
    TextError::Unrenderable(error.to_string())
}

/// Formats like Python's `json.dumps(ensure_ascii=False)`, which templates expect: nothing is escaped for HTML.
fn to_json(value: &Value, indent: Option<usize>) -> Result<Value, Error> {
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut out = Vec::new();
    let spaces = vec![b' '; indent.unwrap_or(0)];
    match indent {
        Some(_) => {
            let pretty = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, pretty)).map_err(failed)?;
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced)).map_err(failed)?,
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out).into_owned()))
}

/// `{"a": 1, "b": [1, 2]}`
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// Replaces `{% generation %}`, which only matters in training, by a tag without effect and with the same whitespace.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag, after)) = next_tag(rest) {
        out.push_str(before);
        match tag.trim_matches(['-', '+', ' ']) {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

/// Splits at the next tag: text up to and including `{%`, the inside of the tag, text from `%}` on.
fn next_tag(source: &str) -> Option<(&str, &str, &str)> {
    let begin = source.find("{%")? + 2;
    let end = begin + source[begin..].find("%}")?;
    Some((&source[..begin], &source[begin..end], &source[end..]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn template(source: &str) -> ChatTemplate {
        let config = TokenizerConfig {
            bos_token: Some("<s>".to_owned()),
            eos_token: Some("</s>".to_owned()),
            chat_template: Some(source.to_owned()),
        };
        ChatTemplate::from_files(&config, None).unwrap().unwrap()
    }

    fn render(source: &str) -> Result<String, TextError> {
        let message = |role: &str, content: &str| Message { role: role.into(), content: content.into(), name: None };
        template(source).render(&Conversation {
            messages: &[message("system", " Be <kind>. "), message("user", "Hi")],
            add_generation_prompt: true,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_599),
        })
    }

    #[test]
    fn what_published_templates_use() {
        for (source, expected) in [
            (
                "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m.content }}{% endfor %}{{ eos_token }}",
                "<s>[system] Be <kind>. [user]Hi</s>",
            ),
            ("{% if add_generation_prompt %}go{% endif %}{% if tools %}tools{% endif %}", "go"),
            ("{{ messages[0]['content'].strip() | trim }}|{{ messages[1].content.upper() }}", "Be <kind>.|HI"),
            ("{% if messages[0].role == 'system' %}{% set m = messages[1:] %}{% endif %}{{ m | length }}", "1"),
            (
                "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% endfor %}", "Hi"),
            ("{{ messages[1] | tojson }}", r#"{"role": "user", "content": "Hi"}"#),
            ("{{ messages[0].content | tojson }}", r#"" Be <kind>. ""#),
            ("{{ strftime_now('%d %b %Y') }}", "31 Dec 2024"),
            (
                "{%- for m in messages %}\n    {%- if true %}\n        {{- m.role }}\n    {%- endif %}\n{%- endfor %}",
                "systemuser",
            ),
            ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
            ("{% for m in messages %}{%- generation -%} {{ m.role }} {% endgeneration %}{% endfor %}", "system user "),
            ("{{ 'a' if messages[0].tool_calls is defined else 'b' }}{{ messages[0].name }}", "b"),
            ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[1].content) }}", "<Hi>"),
        ] {
            assert_eq!(render(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn dates_are_those_of_strftime_in_utc() {
        for (seconds, format, expected) in [
            (0, "%Y-%m-%d %H:%M:%S %a", "1970-01-01 00:00:00 Thu"),
            (951_782_399, "%d %b %Y, %A, %I:%M %p", "28 Feb 2000, Monday, 11:59 PM"),
            (951_782_400, "%F %j", "2000-02-29 060"),
            (1_735_689_599, "%-d %B %y %T %Z %z", "31 December 24 23:59:59 UTC +0000"),
            (1_772_323_200, "%-m/%-d %-I%p %h 100%%", "3/1 12AM Mar 100%"),
            (0, "%! %", "%! %"),
        ] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let conversation = Conversation { messages: &[], add_generation_prompt: false, now };
            let template = template(&format!("{{{{ strftime_now('{format}') }}}}"));
            assert_eq!(template.render(&conversation).unwrap(), expected, "{format}");
        }
    }

    #[test]
    fn the_bundled_template() {
        let json = include_bytes!("../../../models/storyteller-11m/tokenizer_config.json");
        let config = TokenizerConfig::from_json(json).unwrap();
        let template = ChatTemplate::from_files(&config, None).unwrap().unwrap();
        let messages = [Message { role: "user".into(), content: "Hi".into(), name: None }];
        let conversation = |add_generation_prompt| Conversation {
            messages: &messages,
            add_generation_prompt,
            now: SystemTime::UNIX_EPOCH,
        };
        assert_eq!(
            template.render(&conversation(true)).unwrap(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(template.render(&conversation(false)).unwrap(), "<|im_start|>user\nHi<|im_end|>\n");
    }

    #[test]
    fn failures_say_whose_fault() {
        let refused = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
        assert!(matches!(&refused, TextError::Refused(message) if message == "roles must alternate"), "{refused}");
        let nested = render("{% macro f() %}{{ raise_exception('no') }}{% endmacro %}{{ f() }}").unwrap_err();
        assert!(matches!(&nested, TextError::Refused(message) if message == "no"), "{nested}");
        let broken = render("{{ messages[7].content.x }}").unwrap_err();
        assert!(broken.is_callers_fault() && broken.to_string().contains("undefined"), "{broken}");

        let config = TokenizerConfig { chat_template: Some("{% for %}".to_owned()), ..TokenizerConfig::default() };
        let error = ChatTemplate::from_files(&config, None).err().unwrap();
        assert!(error.to_string().starts_with("tokenizer_config.json, field chat_template: syntax error"), "{error}");
        let error = ChatTemplate::from_files(&config, Some("{{")).err().unwrap();
        assert!(error.to_string().starts_with("chat_template.jinja: "), "{error}");
        let error = ChatTemplate::from_gguf("{{", None, None).err().unwrap();
        assert!(error.to_string().starts_with("tokenizer.chat_template: "), "{error}");
        assert!(ChatTemplate::from_files(&TokenizerConfig::default(), None).unwrap().is_none());
    }
}
