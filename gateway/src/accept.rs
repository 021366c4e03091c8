//! Connections that come in: one service for all of them, until it is told to end.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder as Connections;
use hyper_util::server::graceful::GracefulShutdown;
use s3s::service::S3Service;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::patience::{BODY_PATIENCE, patient};

/// Pause after a failed accept, which is mostly a lack of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may take for the head of a request, and may rest between two.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Serves connections of `listener` until `shutdown` resolves, then lets requests under way end, for `drain` at most;
/// what still runs then is cut off. Returns when every connection is closed. `what` names the server in the log. A
/// connection that does not get to the end of a request's head within `patience` is closed. Like S3, it speaks HTTP/1.1.
pub async fn accept<S, B>(
    listener: TcpListener,
    service: S,
    what: &'static str,
    (patience, drain): (Duration, Duration),
    shutdown: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    <S as Service<Request<Incoming>>>::Future: Send + 'static,
    <S as Service<Request<Incoming>>>::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut http = Connections::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(patience);
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

/// Serves an S3 on `listener` until `shutdown` resolves, then lets requests under way end, for `drain` at most. Clients that stop
/// in the middle of a body are given up. `what` names the server in the log.
pub async fn serve_s3(
    listener: TcpListener,
    service: S3Service,
    what: &'static str,
    drain: Duration,
    shutdown: impl Future<Output = ()>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { service.call(request.map(|body| patient(body, BODY_PATIENCE).0)).await }
    });
    accept(listener, answer, what, (PATIENCE, drain), shutdown).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn clients_that_never_finish_a_head_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service =
            service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"answer")))) });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let patience = (Duration::from_millis(200), Duration::from_secs(10));
        let running = tokio::spawn(accept(listener, service, "test", patience, async { drop(stopped.await) }));
        for said in ["", "PUT /lake/a HTTP/1.1\r\nhost: x\r\n", "PUT"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(said.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // To the end, which comes from the other side.
            drop(client.read_to_end(&mut answer).await);
            assert!(!answer.starts_with(b"HTTP/1.1 200"), "{said}");
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("answer"), "{answer}");
        stop.send(()).unwrap();
        running.await.unwrap();
    }
}
