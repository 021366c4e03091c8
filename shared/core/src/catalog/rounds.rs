//! Planning anew when others were faster.

use sha2::{Digest, Sha256};

use super::writes::Cancelled;
use crate::ports::Ports;
use crate::store::{StoreError, StoreErrorKind};

/// How often something is planned anew. Whoever loses a round lost it to somebody who went on, so this is also how many
/// callers can be at one thing at the same moment without one of them giving up.
const ROUNDS: u32 = 64;
const FIRST_PAUSE_MS: u64 = 10;
const LONGEST_PAUSE_MS: u64 = 400;

/// Counts the rounds of one operation.
#[derive(Debug, Default)]
pub(super) struct Rounds(u32);

impl Rounds {
    /// Waits for the next round, longer each time and not as long as others who began at the same moment. `false`: there
    /// were enough.
    pub(super) async fn again(&mut self, ports: &Ports) -> bool {
        self.0 += 1;
        if self.0 >= ROUNDS {
            return false;
        }
        let longest_ms = (FIRST_PAUSE_MS << self.0.min(16)).min(LONGEST_PAUSE_MS);
        let hash = Sha256::digest(ports.ids.uuid().as_bytes());
        let random = hash.iter().take(4).fold(0, |all, byte| all * 256 + u64::from(*byte));
        ports.clock.sleep_ms(longest_ms / 2 + random % (longest_ms / 2 + 1)).await;
        true
    }
}

/// Lets a cancelled transaction pass that wrote nothing because others were at the same items: plan anew.
pub(super) fn lost_to_others(cancelled: Cancelled) -> Result<(), StoreError> {
    match cancelled {
        Cancelled::Conditions => Ok(()),
        Cancelled::Store(error) if error.kind == StoreErrorKind::Conflict => Ok(()),
        Cancelled::Store(error) => Err(error),
    }
}
