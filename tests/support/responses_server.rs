//! A real HTTP/1.1 server on loopback that answers what a list of replies says.
//!
//! In: replies, taken in order of the requests. Out: a base URL, and what was asked. Every thread
//! ends with the [`Server`].

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a waiting thread looks whether the server is gone.
const LOOK: Duration = Duration::from_millis(20);

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers.
    Answer(Answer),
    /// Reads the request and never answers.
    Silent,
    /// Reads the request and closes the connection.
    Drop,
}

/// An answer, sent in chunks.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Status.
    pub(crate) status: u16,
    /// Headers besides `transfer-encoding`.
    pub(crate) headers: Vec<(String, String)>,
    /// Chunks and pauses, in order.
    pub(crate) parts: Vec<Part>,
    /// What follows the last part.
    pub(crate) end: End,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// One chunk.
    Bytes(Vec<u8>),
    /// Silence.
    Pause(Duration),
}

/// What follows the last part of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The end of the body; the connection lives on.
    Complete,
    /// The connection breaks inside the body.
    Cut,
    /// Silence until the client or the test goes away.
    Open,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Method and target, for example `POST /v1/responses`.
    pub(crate) line: String,
    /// Headers with lower-case names.
    pub(crate) headers: Vec<(String, String)>,
    /// Body.
    pub(crate) body: Vec<u8>,
    /// Connection that it came on, from 1.
    pub(crate) connection: usize,
}

#[derive(Debug, Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    is_over: AtomicBool,
}

/// The server; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Listens on a free port. A request beyond the last reply is answered with 400.
    pub(crate) fn start(replies: Vec<Reply>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { replies: Mutex::new(replies.into()), ..Shared::default() });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Ok(Self { address, shared, accepting: Some(accepting) })
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests up to here, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; where that fails, it is gone already.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

/// The URL of a port on which nobody listens.
pub(crate) fn refused_url() -> io::Result<String> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    Ok(format!("http://{address}"))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections = Vec::new();
    for stream in listener.incoming() {
        if shared.is_over.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        let number = connections.len() + 1;
        // A client that goes away is part of the tests.
        connections.push(thread::spawn(move || drop(serve(stream, &shared, number))));
    }
    for connection in connections {
        drop(connection.join());
    }
}

fn serve(stream: TcpStream, shared: &Shared, connection: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    while await_request(&mut input, shared)? {
        let asked = read_request(&mut input, connection)?;
        shared.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        let reply = shared.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match reply.unwrap_or_else(spent) {
            Reply::Drop => return Ok(()),
            Reply::Silent => return hold(&mut input, shared),
            Reply::Answer(answer) => {
                write_answer(&mut out, &answer)?;
                match answer.end {
                    End::Complete => out.write_all(b"0\r\n\r\n")?,
                    End::Cut => return Ok(()),
                    End::Open => return hold(&mut input, shared),
                }
            }
        }
    }
    Ok(())
}

fn spent() -> Reply {
    Reply::Answer(Answer {
        status: 400,
        headers: Vec::new(),
        parts: vec![Part::Bytes(b"the list of replies is spent".to_vec())],
        end: End::Complete,
    })
}

fn write_answer(out: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\ntransfer-encoding: chunked\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
    }
    head.push_str("\r\n");
    out.write_all(head.as_bytes())?;
    for part in &answer.parts {
        match part {
            Part::Pause(pause) => thread::sleep(*pause),
            // An empty chunk would end the body.
            Part::Bytes(bytes) if bytes.is_empty() => {}
            Part::Bytes(bytes) => {
                let size = format!("{:x}\r\n", bytes.len());
                out.write_all(&[size.as_bytes(), bytes, b"\r\n"].concat())?;
            }
        }
    }
    Ok(())
}

/// Waits for the first byte of a request; `false` when there will be none.
fn await_request(input: &mut BufReader<TcpStream>, shared: &Shared) -> io::Result<bool> {
    while !shared.is_over.load(Ordering::SeqCst) {
        match input.fill_buf() {
            Ok(bytes) => return Ok(!bytes.is_empty()),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Says nothing until the client or the server goes away.
fn hold(input: &mut BufReader<TcpStream>, shared: &Shared) -> io::Result<()> {
    let mut byte = [0];
    while !shared.is_over.load(Ordering::SeqCst) {
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn read_request(input: &mut BufReader<TcpStream>, connection: usize) -> io::Result<Asked> {
    // A request that has begun comes whole; only a stalled machine takes longer than this.
    input.get_ref().set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<(String, String)> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or_default();
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    input.get_ref().set_read_timeout(Some(LOOK))?;
    let line = lines.first().and_then(|line| line.rsplit_once(' '));
    let line = line.map(|(line, _)| line.to_owned()).unwrap_or_default();
    Ok(Asked { line, headers, body, connection })
}
