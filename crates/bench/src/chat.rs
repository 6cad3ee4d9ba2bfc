//! `baton chat`: a conversation in the terminal, with any server. What is typed arrives on standard input; answers leave as
//! they come, each followed by how fast it was.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::HttpClient;
use crate::error::BenchError;
use crate::probe::models;
use crate::record::RequestFailure;
use crate::sse::ChunkUsage;
use crate::target::ServerUrl;
use crate::units::ms;

#[derive(Args, Debug)]
pub struct ChatOptions {
    /// The server: anything that speaks OpenAI's chat API over http
    #[arg(long, default_value = "http://127.0.0.1:8000", value_name = "URL")]
    url: ServerUrl,

    /// Which model to talk to [default: the first of /v1/models]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// System prompt: what the model gets before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Sent as a bearer token [default: BATON_API_KEY or OPENAI_API_KEY of the environment]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,

    /// Most tokens of an answer [default: as the server decides]
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,

    /// 0 is always the same answer, 1 is lively [default: as the server decides]
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
}

const HELP: &str = "  /clear    begin anew
  /retry    another answer to the last question
  /help     this
  /exit     leave, as Ctrl-D does; Ctrl-C stops an answer";

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChatMessage {
    role: &'static str,
    content: String,
}

pub async fn chat(options: &ChatOptions) -> Result<(), BenchError> {
    let client = HttpClient::new(options.url.clone(), options.api_key.clone(), 1)?;
    let model = match &options.model {
        Some(model) => Some(model.clone()),
        None => {
            let models = models(&client).await.map_err(|failure| failure.of_server(&client))?;
            models.into_iter().next().map(|model| model.id)
        }
    };
    let mut talk = Talk::new(client, model, options);
    talk.greet();
    let mut lines = read_lines();
    loop {
        talk.prompt();
        let line = tokio::select! {
            biased;
            line = lines.recv() => line,
            () = interrupted() => None,
        };
        let Some(line) = line else { break };
        let Some(command) = talk.read(line.trim()) else { continue };
        match command {
            ChatCommand::Leave => break,
            ChatCommand::Answer => {
                let stopped = tokio::select! {
                    biased;
                    () = interrupted() => true,
                    result = talk.answer() => {
                        if let Err(failure) = result {
                            talk.failed(&failure);
                        }
                        false
                    }
                };
                if stopped {
                    talk.keep_answer();
                    println!();
                }
            }
        }
    }
    if talk.fancy {
        println!();
    }
    Ok(())
}

enum ChatCommand {
    Answer,
    Leave,
}

struct Talk {
    client: Arc<HttpClient>,
    model: Option<String>,
    system: Option<String>,
    /// Limits the user set.
    fields: Map<String, Value>,
    /// Without the system message.
    history: Vec<ChatMessage>,
    /// What has come of the answer so far.
    partial: String,
    fancy: bool,
}

impl Talk {
    fn new(client: Arc<HttpClient>, model: Option<String>, options: &ChatOptions) -> Self {
        let mut fields = Map::new();
        if let Some(tokens) = options.max_tokens {
            fields.insert("max_tokens".into(), tokens.into());
        }
        if let Some(temperature) = options.temperature {
            fields.insert("temperature".into(), json!(temperature));
        }
        Self {
            client,
            model,
            system: options.system.clone(),
            fields,
            history: Vec::new(),
            partial: String::new(),
            fancy: stdin().is_terminal() && stdout().is_terminal(),
        }
    }

    fn greet(&self) {
        if self.fancy {
            let model = self.model.as_deref().unwrap_or("the model");
            println!("{model} at {}\n{}\n", self.client.target, dim(HELP));
        }
    }

    fn prompt(&self) {
        if self.fancy {
            put("\x1b[1m>\x1b[0m ");
        }
    }

    /// What a line asks for; nothing more to do for most commands.
    fn read(&mut self, line: &str) -> Option<ChatCommand> {
        match line {
            "" => None,
            "/exit" | "/quit" => Some(ChatCommand::Leave),
            "/help" => {
                println!("{HELP}");
                None
            }
            "/clear" => {
                self.history.clear();
                None
            }
            "/retry" => {
                self.history.pop_if(|message| message.role == "assistant");
                (!self.history.is_empty()).then_some(ChatCommand::Answer)
            }
            text if is_command(text) => {
                println!("{} is no command:\n{HELP}", text.split(' ').next().unwrap_or(text));
                None
            }
            text => {
                self.history.push(ChatMessage { role: "user", content: text.to_owned() });
                Some(ChatCommand::Answer)
            }
        }
    }

    fn body(&self) -> Vec<u8> {
        let system = self.system.iter().map(|text| ChatMessage { role: "system", content: text.clone() });
        let messages: Vec<_> = system.chain(self.history.iter().cloned()).collect();
        let mut body = json!({"messages": messages, "stream": true, "stream_options": {"include_usage": true}});
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.model.iter().map(|model| ("model".to_owned(), model.as_str().into())));
            fields.extend(self.fields.clone());
        }
        body.to_string().into_bytes()
    }

    async fn answer(&mut self) -> Result<(), RequestFailure> {
        self.partial.clear();
        let (begun, mut first, mut last) = (Instant::now(), None, Instant::now());
        let (mut chunks, mut usage) = (0, None::<ChunkUsage>);
        let mut answer = self.client.post("/chat/completions", self.body().into(), &mut None).await?;
        while let Some(chunk) = answer.next().await? {
            usage = chunk.usage.or(usage);
            if chunk.has_tokens() {
                last = Instant::now();
                first.get_or_insert(last);
                chunks += 1;
                put(chunk.text());
                self.partial += chunk.text();
            }
        }
        answer.finish(&self.client).await;
        self.keep_answer();
        println!();
        let tokens = usage.map_or(chunks, |usage| usage.completion_tokens);
        if let Some(first) = first {
            println!("{}\n", dim(&speed(first - begun, last - first, tokens)));
        }
        Ok(())
    }

    /// Also of one that was stopped: what was generated stays.
    fn keep_answer(&mut self) {
        if !self.partial.is_empty() {
            self.history.push(ChatMessage { role: "assistant", content: std::mem::take(&mut self.partial) });
        }
    }

    /// The question is forgotten, so that it can be sent again.
    fn failed(&mut self, failure: &RequestFailure) {
        self.partial.clear();
        self.history.pop_if(|message| message.role == "user");
        println!("\n{failure}\n");
    }
}

fn speed(first: std::time::Duration, rest: std::time::Duration, tokens: u64) -> String {
    let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let mut text = format!("{tokens} tokens, TTFT {}", ms(millis(first)));
    if tokens > 1 {
        let each = millis(rest) / (tokens - 1) as f64;
        text += &format!(", TPOT {} ({:.0} tokens/s)", ms(each), 1e3 / each.max(1e-6));
    }
    text
}

/// `/word`, alone or before something else; a path has more slashes.
fn is_command(line: &str) -> bool {
    let word = line.split(' ').next().and_then(|word| word.strip_prefix('/'));
    word.is_some_and(|word| !word.is_empty() && word.chars().all(char::is_alphabetic))
}

fn dim(text: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}

/// As it comes, not line by line.
fn put(text: &str) {
    let mut out = stdout();
    // The reader may have gone away; the next read of the input will notice.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Standard input can only be waited for by a thread, which ends with the process.
fn read_lines() -> mpsc::Receiver<String> {
    let (read, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            if read.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Ctrl-C.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words() {
        for (line, expected) in [
            ("/clear", true),
            ("/system You are a pirate.", true),
            ("/etc/hosts holds what?", false),
            ("/ is division", false),
            ("a / b", false),
            ("", false),
        ] {
            assert_eq!(is_command(line), expected, "{line}");
        }
    }
}
