//! Who may change the checkpoints and the old commits of a log at a moment: what was checked must still hold when it is done.
//!
//! Deletions are alone with a log; writing checkpoints goes together with itself, and not with deletions. That holds within
//! one gateway. Two of them know nothing of each other.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lakewarden_core::location::Location;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot};

/// How long a request waits for its turn.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long S3 may take over a change whose client has gone away.
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// Tables that are kept in mind before those that nobody works on are forgotten.
const TABLES_MOST: usize = 1_000;

/// Tables that somebody works on.
#[derive(Debug)]
pub struct Turns {
    tables: Mutex<HashMap<Location, Weak<RwLock<()>>>>,
    patience: Duration,
}

/// The right to go on; given back when dropped.
#[derive(Debug)]
pub struct Turn {
    _alone: Vec<OwnedRwLockWriteGuard<()>>,
    _together: Option<OwnedRwLockReadGuard<()>>,
}

impl Turns {
    pub fn new(patience: Duration) -> Turns {
        Turns { tables: Mutex::default(), patience }
    }

    fn table(&self, root: &Location) -> Arc<RwLock<()>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = tables.get(root).and_then(Weak::upgrade) {
            return found;
        }
        if tables.len() >= TABLES_MOST {
            tables.retain(|_, table| table.strong_count() > 0);
        }
        let table = Arc::new(RwLock::new(()));
        tables.insert(root.clone(), Arc::downgrade(&table));
        table
    }

    /// To delete in these logs. In the order of their names, so that no two requests wait for each other.
    pub async fn alone(&self, roots: BTreeSet<Location>) -> S3Result<Turn> {
        let taken = async {
            let mut turns = Vec::with_capacity(roots.len());
            for root in &roots {
                turns.push(self.table(root).write_owned().await);
            }
            turns
        };
        let turns = tokio::time::timeout(self.patience, taken).await;
        Ok(Turn { _alone: turns.map_err(|_| busy(roots.first()))?, _together: None })
    }

    /// To write a checkpoint of this log.
    pub async fn together(&self, root: &Location) -> S3Result<Turn> {
        let turn = tokio::time::timeout(self.patience, self.table(root).read_owned()).await;
        Ok(Turn { _alone: Vec::new(), _together: Some(turn.map_err(|_| busy(Some(root)))?) })
    }
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new(PATIENCE)
    }
}

fn busy(root: Option<&Location>) -> S3Error {
    let root = root.map(|root| format!(" of {root}")).unwrap_or_default();
    let text = format!(
        "Lakewarden did not do this: other requests are changing checkpoints or old commits in the log{root}. Try again"
    );
    S3Error::with_message(S3ErrorCode::ServiceUnavailable, text)
}

/// Does what the turn is for. It is given back when S3 has answered, not when the client has gone away: what S3 was told to
/// do it may still do.
pub async fn carry_out<T: Send + 'static>(
    turn: Turn,
    work: impl Future<Output = S3Result<T>> + Send + 'static,
) -> S3Result<T> {
    let (client, gone) = oneshot::channel::<()>();
    let done = tokio::spawn(async move {
        let left_alone = async {
            drop(gone.await);
            tokio::time::sleep(LEFT_ALONE).await;
        };
        let answer = tokio::select! {
            answer = work => answer,
            () = left_alone => Err(s3_error!(RequestTimeout, "S3 did not answer, and the client has gone away")),
        };
        drop(turn);
        answer
    });
    let done = done.await;
    drop(client);
    done.map_err(|error| s3_error!(InternalError, "the request was broken off: {error}"))?
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn table(name: &str) -> Location {
        Location::new("lake", name)
    }

    fn tables(names: &[&str]) -> BTreeSet<Location> {
        names.iter().map(|name| table(name)).collect()
    }

    #[tokio::test]
    async fn deletions_are_alone_with_a_log() {
        let turns = Turns::new(Duration::from_millis(20));
        let first = turns.alone(tables(&["a", "b"])).await.unwrap();
        for names in [&["a"][..], &["b", "c"]] {
            let error = turns.alone(tables(names)).await.unwrap_err();
            assert_eq!(error.code(), &S3ErrorCode::ServiceUnavailable);
        }
        assert!(turns.together(&table("a")).await.is_err());
        // Another table, and one that was waited for in vain.
        turns.alone(tables(&["c"])).await.unwrap();
        drop(first);
        turns.alone(tables(&["a", "b", "c"])).await.unwrap();
    }

    #[tokio::test]
    async fn checkpoints_are_written_together_and_not_with_deletions() {
        let turns = Turns::new(Duration::from_millis(20));
        let (one, two) = (turns.together(&table("a")).await.unwrap(), turns.together(&table("a")).await.unwrap());
        assert!(turns.alone(tables(&["a"])).await.is_err());
        drop(one);
        assert!(turns.alone(tables(&["a"])).await.is_err());
        drop(two);
        turns.alone(tables(&["a"])).await.unwrap();
    }

    #[tokio::test]
    async fn who_waits_gets_the_turn_and_nobody_is_inside_with_another() {
        let turns = Arc::new(Turns::default());
        let inside = Arc::new(AtomicUsize::new(0));
        let work = |names: &'static [&'static str]| {
            let (turns, inside) = (turns.clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    let _turn = turns.alone(tables(names)).await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            })
        };
        // All of them share one table.
        for task in [work(&["a", "m"]), work(&["m", "z"]), work(&["z", "m", "a"])] {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_client_that_goes_away_does_not_give_the_turn_back() {
        let turns = Arc::new(Turns::new(Duration::from_millis(20)));
        let (answer, answered) = oneshot::channel::<()>();
        let turn = turns.alone(tables(&["a"])).await.unwrap();
        let client = tokio::spawn(carry_out(turn, async {
            drop(answered.await);
            Ok(())
        }));
        tokio::task::yield_now().await;
        client.abort();
        drop(client.await);
        assert!(turns.alone(tables(&["a"])).await.is_err(), "S3 has not answered");
        answer.send(()).unwrap();
        let turns = Turns { patience: PATIENCE, ..Arc::try_unwrap(turns).unwrap() };
        turns.alone(tables(&["a"])).await.unwrap();
    }

    #[tokio::test]
    async fn tables_that_nobody_works_on_are_forgotten() {
        let turns = Turns::default();
        for number in 0..2 * TABLES_MOST {
            turns.together(&table(&number.to_string())).await.unwrap();
        }
        assert!(turns.tables.lock().unwrap().len() <= TABLES_MOST);
    }
}
