//! A service that answers what a test says, to see what clients send and how often.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::servers::Server;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method, path and query.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Answers every request with one status and body, and keeps the requests.
#[derive(Debug)]
pub struct FakeService {
    seen: Arc<Mutex<Vec<Seen>>>,
    server: Server,
}

impl FakeService {
    pub fn answering(status: u16, content_type: &'static str, body: &'static str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        let server = Server::start(Box::new(move |listener, mut stopped| {
            Box::pin(async move {
                loop {
                    tokio::select! {
                        _ = &mut stopped => return,
                        accepted = listener.accept() => {
                            let (stream, _) = accepted.unwrap();
                            answer(stream, status, content_type, body, &notes).await;
                        }
                    }
                }
            })
        }));
        Self { seen, server }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// One request of one connection, which is closed afterwards.
async fn answer(mut stream: TcpStream, status: u16, content_type: &str, body: &str, notes: &Mutex<Vec<Seen>>) {
    let mut received = Vec::new();
    let head_end = loop {
        if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut received).await.unwrap() == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&received[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut seen = Seen { line, headers, body: Vec::new() };
    let length: usize = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    while received.len() < head_end + length {
        if stream.read_buf(&mut received).await.unwrap() == 0 {
            return;
        }
    }
    seen.body = received[head_end..].to_vec();
    notes.lock().unwrap().push(seen);
    let head = format!(
        "HTTP/1.1 {status} Fake\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
}
