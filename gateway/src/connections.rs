//! Connections to S3 and to the commit service, and where these are.

use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use s3s::Body;
use thiserror::Error as ThisError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A request must not meet a connection that its server is about to close for idleness.
const IDLE_TIMEOUT: Duration = Duration::from_secs(8);

/// An address cannot be used.
#[derive(Debug, ThisError)]
pub enum AddressError {
    #[error("`{0}` is no address: it should look like https://host or http://127.0.0.1:8700")]
    NotAnAddress(String),
    #[error("no TLS connections can be made: {0}")]
    Tls(String),
}

/// A server, and the path that goes before all others there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
    host: HeaderValue,
}

impl Address {
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError::NotAnAddress(text.to_owned());
        let parts = text.parse::<Uri>().map_err(|_| wrong())?.into_parts();
        let scheme = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let (scheme, authority) = scheme.zip(parts.authority).ok_or_else(wrong)?;
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        let prefix = parts.path_and_query.as_ref().map_or("", |path| path.path()).trim_end_matches('/').to_owned();
        Ok(Address { scheme, authority, prefix, host })
    }

    /// What the header `host` says.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The path of a request as the server sees it.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Where a request goes. `path` comes from [`Address::path`], encoded.
    pub fn uri(&self, path: &str, query: &str) -> Result<Uri, http::Error> {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(target).build()
    }

    fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

/// A client that keeps connections. Certificates are only needed where an address is secure.
#[derive(Clone, Debug)]
pub enum Connections {
    Plain(Client<HttpConnector, Body>),
    Secure(Client<HttpsConnector<HttpConnector>, Body>),
}

impl Connections {
    pub fn to(addresses: &[&Address]) -> Result<Connections, AddressError> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        if !addresses.iter().any(|address| address.is_secure()) {
            return Ok(Connections::Plain(client.build(tcp)));
        }
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new().with_native_roots();
        let tls = tls.map_err(|error| AddressError::Tls(error.to_string()))?.https_or_http().enable_http1();
        Ok(Connections::Secure(client.build(tls.wrap_connector(tcp))))
    }

    pub async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, Error> {
        match self {
            Connections::Plain(client) => client.request(request).await,
            Connections::Secure(client) => client.request(request).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_and_a_host() {
        let address = Address::parse("https://abc.execute-api.eu-west-1.amazonaws.com/prod/").unwrap();
        assert_eq!(address.path("/v1/commits"), "/prod/v1/commits");
        assert_eq!(address.to_string(), "https://abc.execute-api.eu-west-1.amazonaws.com/prod");
        let uri = address.uri("/prod/a%20b", "x=1").unwrap();
        assert_eq!(uri, "https://abc.execute-api.eu-west-1.amazonaws.com/prod/a%20b?x=1");
        assert_eq!(Address::parse("http://127.0.0.1:8701").unwrap().host(), "127.0.0.1:8701");
        for text in ["", "127.0.0.1:8700", "/x", "ftp://x", "s3://bucket"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
