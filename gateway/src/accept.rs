//! Connections that come in: one service for all of them, until it is told to end.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder as Connections;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Pause after a failed accept, which is mostly a lack of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections of `listener` until `shutdown` resolves, then lets requests under way end, for `drain` at most;
/// what still runs then is cut off. Returns when every connection is closed. `what` names the server in the log.
pub async fn accept<S, B>(
    listener: TcpListener,
    service: S,
    what: &'static str,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    <S as Service<Request<Incoming>>>::Future: Send + 'static,
    <S as Service<Request<Incoming>>>::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let http = Connections::new(TokioExecutor::new());
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, what, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let connection = http.serve_connection(TokioIo::new(socket), service.clone()).into_owned();
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(?drain, what, "requests were cut off");
    }
    connections.shutdown().await;
}
