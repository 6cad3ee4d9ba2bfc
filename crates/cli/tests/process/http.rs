//! As much HTTP as the tests need, over a plain socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::baton::PATIENCE;

/// (status, body)
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    send(address, "GET", path, "", "").unwrap().into_body()
}

/// `headers`: whole lines.
pub(crate) fn get_with(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    send(address, "GET", path, headers, "").unwrap().into_body()
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, body) = send(address, "POST", path, "", &body.to_string()).unwrap().into_body();
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

/// Events of a streamed completion.
pub(crate) struct Events(Response);

impl Events {
    pub(crate) fn open(address: SocketAddr, path: &str, body: &Value) -> Self {
        let response = send(address, "POST", path, "", &body.to_string()).unwrap();
        assert_eq!(response.status, 200);
        Self(response)
    }

    /// Text of the next event that has some; `None` after `[DONE]`. An error when the stream breaks off before.
    pub(crate) fn next_text(&mut self) -> io::Result<Option<String>> {
        loop {
            let line = self.0.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                return Ok(None);
            }
            let event: Value = serde_json::from_str(data)?;
            assert_eq!(event["error"], Value::Null);
            match event["choices"][0]["text"].as_str() {
                Some("") | None => {}
                Some(text) => return Ok(Some(text.to_owned())),
            }
        }
    }

    pub(crate) fn rest(&mut self) -> io::Result<String> {
        let mut all = String::new();
        while let Some(text) = self.next_text()? {
            all += &text;
        }
        Ok(all)
    }
}

fn send(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Response::read(BufReader::new(stream))
}

struct Response {
    status: u16,
    chunked: bool,
    input: BufReader<TcpStream>,
    /// Received and not yet read.
    pending: Vec<u8>,
}

impl Response {
    fn read(mut input: BufReader<TcpStream>) -> io::Result<Self> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let mut chunked = false;
        loop {
            line.clear();
            input.read_line(&mut line)?;
            match line.trim() {
                "" => return Ok(Self { status, chunked, input, pending: Vec::new() }),
                header => chunked |= header.eq_ignore_ascii_case("transfer-encoding: chunked"),
            }
        }
    }

    /// More of the body; `false` at its end.
    fn fill(&mut self) -> io::Result<bool> {
        if !self.chunked {
            return Ok((&mut self.input).take(4096).read_to_end(&mut self.pending)? > 0);
        }
        let mut size = String::new();
        self.input.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let mut chunk = vec![0; size + 2];
        self.input.read_exact(&mut chunk)?;
        self.pending.extend_from_slice(&chunk[..size]);
        Ok(size > 0)
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn into_body(mut self) -> (u16, String) {
        while self.fill().unwrap() {}
        (self.status, String::from_utf8(self.pending).unwrap())
    }
}
