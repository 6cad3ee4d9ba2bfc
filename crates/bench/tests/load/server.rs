//! Servers with a known speed: just enough HTTP and OpenAI to be measured.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behaviour {
    /// Serves all at once, each at this pace.
    Paced { prefill: Duration, per_token: Duration },
    /// One after the other, each so long; late timers do not add up.
    Serial { each: Duration },
    /// Refuses prompts that are token ids.
    TextOnly,
    /// Has no completions.
    ChatOnly,
    /// 429, a whole answer, half an answer, and again; after two whole ones.
    FailsEveryOther,
    /// Promises to keep connections, and closes each when a second request arrives.
    HangsUp,
}

pub(crate) struct Server {
    address: std::net::SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    behaviour: Behaviour,
    /// When a serial server is free again.
    free: Mutex<Instant>,
    requests: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    bodies: Mutex<Vec<String>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            behaviour,
            free: Mutex::new(Instant::now()),
            requests: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            bodies: Mutex::default(),
        });
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // A client that hangs up ends its connection with an error.
                tokio::spawn(async move { drop(state.connection(socket).await) });
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.state.most_at_once.load(Ordering::SeqCst)
    }

    /// Of all requests, the probe's included.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.state.bodies.lock().unwrap().clone()
    }
}

impl State {
    async fn connection(&self, socket: TcpStream) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        let mut socket = BufReader::new(socket);
        let mut answered = 0;
        while let Some((path, body)) = read_request(&mut socket).await? {
            if self.behaviour == Behaviour::HangsUp && answered == 1 {
                break;
            }
            answered += 1;
            let now = 1 + self.at_once.fetch_add(1, Ordering::SeqCst);
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            let go_on = self.answer(socket.get_mut(), &path, &body).await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            if !go_on? {
                break;
            }
        }
        Ok(())
    }

    /// `false`: the connection is cut.
    async fn answer(&self, out: &mut TcpStream, path: &str, body: &str) -> std::io::Result<bool> {
        if path == "/v1/models" {
            let models = json!({"data": [{"id": "known", "max_model_len": 4096, "vocab_size": 1000}]});
            return plain(out, "200 OK", &models).await;
        }
        let request: Value = serde_json::from_str(body).unwrap();
        let refused = match self.behaviour {
            Behaviour::TextOnly => request["prompt"].is_array(),
            Behaviour::ChatOnly => path != "/v1/chat/completions",
            _ => path != "/v1/completions",
        };
        if refused {
            return plain(out, "400 Bad Request", &json!({"error": {"message": "not like this"}})).await;
        }
        self.bodies.lock().unwrap().push(body.to_owned());
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let tokens = request["max_tokens"].as_u64().unwrap();
        let (mut due, per_token) = self.turn();
        let failing = self.behaviour == Behaviour::FailsEveryOther;
        if failing && number % 3 == 1 {
            return plain(out, "429 Too Many Requests", &json!({"error": {"message": "slow down"}})).await;
        }
        out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        for token in 0..tokens {
            sleep_until(due).await;
            due += per_token;
            if failing && number.is_multiple_of(3) && number > 0 && token == tokens / 2 {
                return Ok(false);
            }
            let finish = (token + 1 == tokens).then_some("length");
            event(out, &json!({"choices": [{"text": "x", "delta": delta(path), "finish_reason": finish}]}).to_string())
                .await?;
        }
        let input = request["prompt"].as_array().map_or(1, Vec::len);
        event(out, &json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": tokens}}).to_string())
            .await?;
        event(out, "[DONE]").await?;
        out.write_all(b"0\r\n\r\n").await?;
        Ok(true)
    }

    /// When the first token of a request is due, and the time between tokens.
    fn turn(&self) -> (Instant, Duration) {
        let now = Instant::now();
        match self.behaviour {
            Behaviour::Paced { prefill, per_token } => (now + prefill, per_token),
            Behaviour::Serial { each } => {
                let mut free = self.free.lock().unwrap();
                *free = (*free).max(now) + each;
                (*free, Duration::ZERO)
            }
            _ => (now, Duration::ZERO),
        }
    }
}

fn delta(path: &str) -> Option<Value> {
    path.ends_with("/chat/completions").then(|| json!({"content": "x"}))
}

async fn read_request(socket: &mut BufReader<TcpStream>) -> std::io::Result<Option<(String, String)>> {
    let (mut line, mut path, mut length) = (String::new(), String::new(), 0);
    loop {
        line.clear();
        if socket.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap().to_owned();
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await?;
    Ok(Some((path, String::from_utf8(body).unwrap())))
}

async fn plain(out: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<bool> {
    let body = body.to_string();
    out.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    Ok(true)
}

async fn event(out: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    out.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await
}
