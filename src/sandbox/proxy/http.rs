//! The proxy's HTTP: one request or one tunnel a connection.
//!
//! In: a client's connection. Out: its request relayed, or a status that says why not. A connection
//! ends after its request: nothing can follow it unseen.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::body::Body;
use super::dial::{Dialled, Dialler, Refused};
use super::head::{self, Asked, Request};
use super::limits::Meter;
use super::tunnel::{self, Aim, Client};
use crate::policy::hosts::{Protocol, Target};

/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// Interim responses before the one that counts; ours.
const INTERIM: usize = 16;

/// Serves one connection.
pub(super) async fn serve(mut stream: TcpStream, dialler: &Dialler) -> io::Result<()> {
    let mut first = Vec::new();
    let read = timeout(dialler.limits.head, read_request(&mut stream, &mut first)).await;
    let asked = match read {
        Err(_) => return say(stream, 408, "network: the request did not come in time").await,
        Ok(Err(Failed::Io(error))) => return Err(error),
        Ok(Err(Failed::Wrong(why))) => {
            return say(stream, 400, &format!("network: the request is refused: {why}")).await;
        }
        Ok(Ok(asked)) => asked,
    };
    let client = Client { stream, first };
    match asked {
        Asked::Tunnel(target) => tunnel(client, &target, dialler).await,
        Asked::Request(request) => relay(client, &request, dialler).await,
    }
}

enum Failed {
    Io(io::Error),
    Wrong(&'static str),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a head; what came behind it stays in `first`.
async fn read_request(stream: &mut TcpStream, first: &mut Vec<u8>) -> Result<Asked, Failed> {
    loop {
        if let Some((asked, length)) = head::request(first).map_err(Failed::Wrong)? {
            first.drain(..length);
            return Ok(asked);
        }
        if first.len() >= head::LONGEST {
            return Err(Failed::Wrong("its head has more than 64 KiB"));
        }
        if stream.read_buf(first).await? == 0 {
            return Err(Failed::Io(io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

async fn tunnel(mut client: Client, target: &Target, dialler: &Dialler) -> io::Result<()> {
    match dialler.dial(target, Protocol::Https).await {
        Err(refused) => refuse(client.stream, target, &refused).await,
        Ok(Dialled { stream, names, .. }) => {
            client.stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            let aim = Aim { target, protocol: Protocol::Https, names: &names };
            tunnel::run(client, stream, aim, dialler).await
        }
    }
}

/// Relays one request and its response.
async fn relay(mut client: Client, request: &Request, dialler: &Dialler) -> io::Result<()> {
    let dialled = match dialler.dial(&request.target, Protocol::Http).await {
        Err(refused) => return refuse(client.stream, &request.target, &refused).await,
        Ok(dialled) => dialled,
    };
    let meter = Meter::new(&dialler.limits);
    match exchange(&mut client, dialled, request, &meter).await {
        Ok(()) => client.stream.shutdown().await,
        Err(Unanswered::Cut(error)) => Err(error),
        Err(Unanswered::Before(why)) => {
            let refused = if why.kind() == io::ErrorKind::TimedOut {
                Refused::TimedOut
            } else {
                Refused::Unreachable(why.to_string())
            };
            refuse(client.stream, &request.target, &refused).await
        }
    }
}

/// Sends the request while the response comes.
async fn exchange(
    client: &mut Client,
    mut dialled: Dialled,
    request: &Request,
    meter: &Meter,
) -> Result<(), Unanswered> {
    let head = match &dialled.hop {
        Some(hop) => request.head_for_proxy(hop.credentials.as_deref()),
        None => request.head.clone(),
    };
    let (mut from_client, mut to_client) = client.stream.split();
    let (mut from_server, mut to_server) = dialled.stream.split();
    let up = async {
        meter.step(to_server.write_all(&head)).await?;
        let mut pipe = Pipe { from: &mut from_client, to: &mut to_server, meter };
        pipe.body(&mut client.first, Body::new(request.framing)).await?;
        // What a client sends behind its request is not read.
        std::future::pending::<io::Result<()>>().await
    };
    let mut pipe = Pipe { from: &mut from_server, to: &mut to_client, meter };
    let down = respond(&mut pipe, request.is_head);
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        Err(error) = &mut up => {
            let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            // A server may answer and close before it has read the whole body.
            if closed.contains(&error.kind()) { down.await } else { Err(Unanswered::Cut(error)) }
        }
        responded = &mut down => responded,
    }
}

/// Why a response didn't arrive.
enum Unanswered {
    /// Nothing of it went to the client.
    Before(io::Error),
    /// Some of it did.
    Cut(io::Error),
}

/// One direction of a request.
struct Pipe<'a, 'b> {
    from: &'a mut ReadHalf<'b>,
    to: &'a mut WriteHalf<'b>,
    meter: &'a Meter,
}

impl Pipe<'_, '_> {
    async fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        buffer.reserve(PIECE);
        let count = self.meter.step(self.from.read_buf(buffer)).await?;
        self.meter.add(count)?;
        Ok(count)
    }

    /// Moves a body; `buffer` holds its beginning.
    async fn body(&mut self, buffer: &mut Vec<u8>, mut body: Body) -> io::Result<()> {
        let mut out = Vec::new();
        loop {
            out.clear();
            body.feed(buffer, &mut out)
                .map_err(|_| io::Error::other("the chunks of a body can't be read"))?;
            buffer.clear();
            self.meter.step(self.to.write_all(&out)).await?;
            if body.is_done() {
                return Ok(());
            }
            if self.fill(buffer).await? == 0 {
                let is_end = body.may_close();
                return if is_end { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

/// Relays the response, interim ones before it included.
async fn respond(pipe: &mut Pipe<'_, '_>, is_head: bool) -> Result<(), Unanswered> {
    let mut buffer = Vec::new();
    let mut interim = 0;
    loop {
        let wrong = |why| Unanswered::Before(io::Error::other(why));
        let Some((response, length)) = head::response(&buffer, is_head).map_err(wrong)? else {
            if buffer.len() >= head::LONGEST {
                return Err(wrong("the head of its answer has more than 64 KiB"));
            }
            if pipe.fill(&mut buffer).await.map_err(Unanswered::Before)? == 0 {
                return Err(wrong("it closed the connection without an answer"));
            }
            continue;
        };
        buffer.drain(..length);
        let written = pipe.meter.step(pipe.to.write_all(&response.head)).await;
        written.map_err(Unanswered::Cut)?;
        if response.status >= 200 {
            let body = Body::new(response.framing);
            return pipe.body(&mut buffer, body).await.map_err(Unanswered::Cut);
        }
        interim += 1;
        if interim > INTERIM {
            return Err(Unanswered::Cut(io::Error::other("too many interim responses")));
        }
    }
}

async fn refuse(stream: TcpStream, target: &Target, refused: &Refused) -> io::Result<()> {
    let status = match refused {
        Refused::Denied(_) => 403,
        Refused::Unreachable(_) => 502,
        Refused::TimedOut => 504,
    };
    say(stream, status, &refused.line(target)).await
}

/// Answers with a status and one line. The line stands in the status line too: clients that asked
/// for a tunnel show nothing else.
async fn say(mut stream: TcpStream, status: u16, line: &str) -> io::Result<()> {
    let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let answer = format!(
        "HTTP/1.1 {status} {shown}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{shown}\n",
        shown.len() + 1
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // What the client still sends is read, for a while: a reset would take the answer from it.
    let mut rest = vec![0; PIECE];
    let drained = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(std::time::Duration::from_secs(1), drained).await;
    Ok(())
}
