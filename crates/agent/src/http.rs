//! The HTTP server of metrics and console: read-only, with limits on connections, headers and time.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use serde::{Deserialize, Deserializer};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

use crate::Failure;
use crate::data;
use crate::prometheus::{Metrics, classic};

/// Maximum simultaneous connections. Further ones are closed at once.
const CONNECTIONS: usize = 64;

/// Time limit for the head of a request, and its maximum size.
const HEAD: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 16 << 10;

/// Time in which a client must take something of what waits for it.
const UNTAKEN: Duration = Duration::from_secs(10);

/// The agent is ready only if all sources were read within this time.
const UNREAD: Duration = Duration::from_secs(10);

/// The address to serve at, and who may connect.
#[derive(Clone, Debug)]
pub struct Access {
    /// Address and port.
    pub listen: SocketAddr,
    /// File with the token that clients present.
    pub token_file: Option<PathBuf>,
}

impl Access {
    /// Checks that an address reachable from other hosts has a token.
    ///
    /// # Errors
    /// The reason, in one line.
    pub fn check(&self, name: &str) -> Result<(), String> {
        if self.token_file.is_some() || self.listen.ip().is_loopback() {
            return Ok(());
        }
        Err(format!(
            "sinks.{name}.listen: {} is open to other hosts; name a token-file, or listen on 127.0.0.1",
            self.listen
        ))
    }
}

/// Parses an address with a port.
pub(crate) fn listen<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!(
            "invalid address '{text}'; write an address and a port, such as 127.0.0.1:9469"
        ))
    })
}

/// Whether the agent measures, for `/readyz`.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Option<Instant>>>);

impl Health {
    /// Records that all sources were just read.
    pub fn alive(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Resets the state.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What keeps the agent from measuring, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Some("no source has been read yet".to_owned()),
            Some(alive) if alive.elapsed() > UNREAD => {
                Some(format!("a source has not been read for {} s", alive.elapsed().as_secs()))
            }
            Some(_) => None,
        }
    }

    /// The paths `/healthz` and `/readyz`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self.clone())
    }
}

async fn ready(State(health): State<Health>) -> Response {
    match health.problem() {
        None => "ready\n".into_response(),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem + "\n").into_response(),
    }
}

/// The path `/metrics`.
pub fn metrics(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

/// Returns the metrics in the format that the client asks for.
async fn scrape(State(metrics): State<Metrics>, headers: HeaderMap) -> Response {
    let accepted = headers.get("accept").and_then(|accept| accept.to_str().ok());
    let text = metrics.encode();
    if accepted.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(CONTENT_TYPE, kind)], text).into_response()
    } else {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        ([(CONTENT_TYPE, kind)], classic(&text)).into_response()
    }
}

/// A running server. Dropping it frees its port.
pub struct Server {
    address: SocketAddr,
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves these routes on a separate thread.
    ///
    /// # Errors
    /// When the address is in use, or is reachable from other hosts without a token.
    pub fn start(name: &str, access: &Access, routes: Router) -> Result<Self, Failure> {
        let listen = access.listen;
        let failed = |error: io::Error| {
            Failure::Output(format!("sinks.{name}: cannot listen on {listen}: {error}"))
        };
        access.check(name).map_err(Failure::Usage)?;
        let token = access.token_file.as_deref().map(token).transpose();
        let token =
            token.map_err(|reason| Failure::Usage(format!("sinks.{name}.token-file: {reason}")))?;
        let guard = Guard { is_loopback: listen.ip().is_loopback(), token };
        let routes = routes.layer(from_fn_with_state(Arc::new(guard), check));
        let listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let end = Arc::new(Notify::new());
        let ended = Arc::clone(&end);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let serve = move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(listener, routes) => {}
                    () = ended.notified() => {}
                }
            });
            // Dropping the runtime closes all connections.
        };
        let thread = Builder::new().name(name.to_owned()).spawn(serve).map_err(failed)?;
        Ok(Self { address, end, thread: Some(thread) })
    }

    /// The address it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, routes: Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: wait until some are free.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let routes = routes.clone();
        tokio::spawn(async move {
            serve(stream, routes).await;
            drop(place);
        });
    }
}

async fn serve(stream: TcpStream, routes: Router) {
    // The kernel ends the connection of a client that reads nothing, or whose host is gone.
    if sockopt::set_tcp_user_timeout(&stream, UNTAKEN.as_millis() as u32).is_err() {
        return;
    }
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // A client may disconnect at any time.
    let _ = connection.await;
}

/// Access control.
struct Guard {
    is_loopback: bool,
    /// The hash of the token.
    token: Option<blake3::Hash>,
}

impl Guard {
    /// Why a request is refused, if it is.
    fn refusal(&self, request: &Request) -> Option<(StatusCode, &'static str)> {
        let headers = request.headers();
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Some((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n"));
        }
        let has_body = header(CONTENT_LENGTH).is_some_and(|length| length != "0")
            || headers.contains_key(TRANSFER_ENCODING);
        if has_body {
            return Some((StatusCode::PAYLOAD_TOO_LARGE, "requests must not have a body\n"));
        }
        // A page of another site can reach a local server under its own name (DNS rebinding).
        let mut hosts = headers.get_all(HOST).iter().map(|host| host.to_str().ok());
        let is_named = matches!(hosts.next(), Some(Some(host)) if is_local(host));
        let is_asked = request.uri().host().is_none_or(is_local);
        if self.is_loopback && !(is_named && is_asked && hosts.next().is_none()) {
            return Some((StatusCode::FORBIDDEN, "the Host header names another host\n"));
        }
        let presented = header(AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
        // Comparing hashes takes constant time.
        let is_known = |token: &blake3::Hash| {
            presented.is_some_and(|text| blake3::hash(text.as_bytes()) == *token)
        };
        if self.token.as_ref().is_some_and(|token| !is_known(token)) {
            return Some((StatusCode::UNAUTHORIZED, "the token is missing or wrong\n"));
        }
        None
    }
}

/// Whether a `Host` header names this host.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.refusal(&request) {
        Some((StatusCode::UNAUTHORIZED, reason)) => {
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], reason).into_response()
        }
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

/// The hash of the token in a file that only its owner can read.
fn token(path: &Path) -> Result<blake3::Hash, String> {
    match data::read_secret(path)? {
        token if token.len() >= 16 => Ok(blake3::hash(token.as_bytes())),
        _ => Err(format!("{} has fewer than 16 characters; write a longer token", path.display())),
    }
}
