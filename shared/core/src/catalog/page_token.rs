//! Page tokens: where a listing continues, bound to that listing and authenticated, so that any instance can continue it
//! and nobody can make one up.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::CatalogError;
use super::process_cache::{cache_of, lock};
use super::token_key_item;
use crate::ports::Ports;
use crate::store::{Condition, Consistency, WriteError};

const FORMAT: u8 = 1;
const MAC_BYTES: usize = 16;

/// Keys that sign page tokens, newest first (two generations).
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKeys(pub Vec<Vec<u8>>);

impl std::fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenKeys({})", self.0.len())
    }
}

/// What a listing is: its operation and everything that must not change between its pages.
#[derive(Debug)]
pub struct Scope<'a>(pub &'a [&'a str]);

/// Writes the token that continues `scope` behind `after`.
pub async fn issue(ports: &Ports, scope: &Scope<'_>, after: &[u8]) -> Result<String, CatalogError> {
    let keys = keys(ports).await?;
    let key = keys.0.first().ok_or_else(|| CatalogError::Broken("no key for page tokens".to_owned()))?;
    let mut token = vec![FORMAT];
    token.extend_from_slice(&mac(key, scope, after));
    token.extend_from_slice(after);
    Ok(URL_SAFE_NO_PAD.encode(token))
}

/// Reads a token of `scope`: where to continue.
///
/// # Errors
/// [`CatalogError::ForeignToken`] for a token of another listing, a changed one or none at all.
pub async fn redeem(ports: &Ports, scope: &Scope<'_>, token: &str) -> Result<Vec<u8>, CatalogError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| CatalogError::ForeignToken)?;
    let (Some((&FORMAT, rest)), true) = (bytes.split_first(), bytes.len() > MAC_BYTES) else {
        return Err(CatalogError::ForeignToken);
    };
    let (given, after) = rest.split_at_checked(MAC_BYTES).ok_or(CatalogError::ForeignToken)?;
    let signed = |keys: &TokenKeys| keys.0.iter().any(|key| same(&mac(key, scope, after), given));
    if signed(&keys(ports).await?) || signed(&reload(ports).await?) {
        return Ok(after.to_vec());
    }
    Err(CatalogError::ForeignToken)
}

async fn keys(ports: &Ports) -> Result<TokenKeys, CatalogError> {
    let known = lock(&cache_of(&ports.items).token_keys).clone();
    match known {
        Some(keys) => Ok(keys),
        None => reload(ports).await,
    }
}

/// Reads the key item, or creates it on first use.
async fn reload(ports: &Ports) -> Result<TokenKeys, CatalogError> {
    let at = token_key_item::key();
    let keys = match ports.items.get(&at, Consistency::Strong).await? {
        Some(item) => token_key_item::decode(&item)?,
        None => {
            let mut hash = Sha256::new();
            hash.update(ports.ids.uuid().as_bytes());
            hash.update(ports.ids.uuid().as_bytes());
            let fresh = TokenKeys(vec![hash.finalize().to_vec()]);
            match ports.items.put(&at, token_key_item::encode(&fresh), Condition::Absent).await {
                Ok(()) => fresh,
                Err(WriteError::ConditionFailed { old: Some(item) }) => token_key_item::decode(&item)?,
                Err(WriteError::ConditionFailed { old: None }) => {
                    return Err(CatalogError::Contended("The key of page tokens".to_owned()));
                }
                Err(WriteError::Store(error)) => return Err(error.into()),
            }
        }
    };
    *lock(&cache_of(&ports.items).token_keys) = Some(keys.clone());
    Ok(keys)
}

/// HMAC-SHA256 over the scope (each part with its length) and the position, cut to 16 bytes.
fn mac(key: &[u8], scope: &Scope<'_>, after: &[u8]) -> [u8; MAC_BYTES] {
    let mut message = Vec::new();
    for part in scope.0.iter().map(|part| part.as_bytes()).chain([after]) {
        message.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        message.extend_from_slice(part);
    }
    let mut cut = [0; MAC_BYTES];
    cut.iter_mut().zip(hmac_sha256(key, &message)).for_each(|(to, from)| *to = from);
    cut
}

/// RFC 2104 with SHA-256.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    let short = if key.len() > block.len() { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block.iter_mut().zip(short).for_each(|(to, from)| *to = from);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// Comparison whose time does not tell where two texts differ.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differences, (l, r)| differences | (l ^ r)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryWorld;

    #[test]
    fn the_mac_is_hmac_sha256() {
        // RFC 4231, test cases 1, 2 and 6.
        let cases: [(Vec<u8>, &[u8], &str); 3] = [
            (vec![0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            assert_eq!(hex::encode(hmac_sha256(&key, message)), expected);
        }
    }

    #[tokio::test]
    async fn a_token_opens_its_own_listing_only() {
        let world = MemoryWorld::new(0);
        let scope = Scope(&["GetPartitions", "t1", "1"]);
        let token = issue(&world.ports, &scope, b"\x01abc").await.unwrap();
        assert_eq!(redeem(&world.ports, &scope, &token).await.unwrap(), b"\x01abc");
        for other in [&["GetPartitions", "t2", "1"][..], &["GetPartitions", "t1", "2"], &["GetPartitions", "t11", ""]] {
            assert_eq!(redeem(&world.ports, &Scope(other), &token).await, Err(CatalogError::ForeignToken));
        }
    }

    #[tokio::test]
    async fn a_changed_token_is_refused() {
        let world = MemoryWorld::new(0);
        let scope = Scope(&["x"]);
        let token = issue(&world.ports, &scope, b"after").await.unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = URL_SAFE_NO_PAD.encode(changed);
            assert_eq!(redeem(&world.ports, &scope, &changed).await, Err(CatalogError::ForeignToken), "{at}");
        }
        for wrong in ["", "x", "ü", "====", &token[..10]] {
            assert_eq!(redeem(&world.ports, &scope, wrong).await, Err(CatalogError::ForeignToken), "{wrong}");
        }
    }

    #[tokio::test]
    async fn another_process_continues_and_the_key_is_made_once() {
        let world = MemoryWorld::new(0);
        let scope = Scope(&["x"]);
        let token = issue(&world.ports, &scope, b"after").await.unwrap();
        *lock(&cache_of(&world.ports.items).token_keys) = None;
        assert_eq!(redeem(&world.ports, &scope, &token).await.unwrap(), b"after");
        let writes = world.faults.calls().iter().filter(|call| call.starts_with("put")).count();
        assert_eq!(writes, 1);
    }

    #[tokio::test]
    async fn the_key_before_the_newest_still_opens() {
        let world = MemoryWorld::new(0);
        let scope = Scope(&["x"]);
        let token = issue(&world.ports, &scope, b"after").await.unwrap();
        let old = keys(&world.ports).await.unwrap();
        let two = TokenKeys(vec![vec![7; 32], old.0[0].clone()]);
        let item = token_key_item::encode(&two);
        world.ports.items.put(&token_key_item::key(), item, Condition::Always).await.unwrap();
        *lock(&cache_of(&world.ports.items).token_keys) = None;
        assert_eq!(redeem(&world.ports, &scope, &token).await.unwrap(), b"after");
        assert_ne!(issue(&world.ports, &scope, b"after").await.unwrap(), token);
    }
}
