//! A small checker of linearizability: is there an order of all operations, each taking effect at one moment between its
//! call and its answer, in which all answers are right?

use std::collections::{BTreeMap, HashSet};

/// What every partition says: by name, a mark that no two writes have in common. It stands for the revision too.
pub(super) type State = BTreeMap<&'static str, u64>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create {
        name: &'static str,
        mark: u64,
    },
    Get {
        name: &'static str,
    },
    /// `expected`: the mark that goes with the revision that was sent along.
    Update {
        name: &'static str,
        mark: u64,
        expected: Option<u64>,
    },
    Move {
        name: &'static str,
        to: &'static str,
        mark: u64,
    },
    Delete {
        name: &'static str,
        expected: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Found(u64),
    NotFound,
    Exists,
    Changed,
    /// No answer that says whether it took effect.
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) operation: Operation,
    pub(super) answer: Answer,
    pub(super) called: u64,
    pub(super) answered: u64,
}

/// What an operation answers in this state, and the state behind it.
fn apply(operation: &Operation, state: &State) -> (Answer, State) {
    let mut next = state.clone();
    let differs = |found: u64, expected: &Option<u64>| expected.is_some_and(|expected| expected != found);
    let answer = match operation {
        Operation::Create { name, .. } if state.contains_key(name) => Answer::Exists,
        Operation::Create { name, mark } => {
            next.insert(name, *mark);
            Answer::Done
        }
        Operation::Get { name } => state.get(name).map_or(Answer::NotFound, |mark| Answer::Found(*mark)),
        Operation::Update { name, mark, expected } => match state.get(name) {
            None => Answer::NotFound,
            Some(found) if differs(*found, expected) => Answer::Changed,
            Some(_) => {
                next.insert(name, *mark);
                Answer::Done
            }
        },
        Operation::Move { name, to, mark } => {
            if !state.contains_key(name) {
                Answer::NotFound
            } else if state.contains_key(to) {
                Answer::Exists
            } else {
                next.remove(name);
                next.insert(to, *mark);
                Answer::Done
            }
        }
        Operation::Delete { name, expected } => match state.get(name) {
            None => Answer::NotFound,
            Some(found) if differs(*found, expected) => Answer::Changed,
            Some(_) => {
                next.remove(name);
                Answer::Done
            }
        },
    };
    (answer, next)
}

/// Whether the answers of up to 128 operations can be explained, ending in the state that was seen at the end.
pub(super) fn is_linearizable(events: &[Event], first: &State, last: &State) -> bool {
    assert!(events.len() <= 128);
    let all_answered = events.iter().enumerate().filter(|(_, event)| event.answer != Answer::Unknown);
    let needed = all_answered.fold(0_u128, |bits, (at, _)| bits | 1 << at);
    let mut seen: HashSet<(u128, State)> = HashSet::new();
    let mut open = vec![(0_u128, first.clone())];
    while let Some((done, state)) = open.pop() {
        if done & needed == needed && state == *last {
            return true;
        }
        if !seen.insert((done, state.clone())) {
            continue;
        }
        let left = |at: usize| done & (1 << at) == 0;
        let answered = |at: usize| if events[at].answer == Answer::Unknown { u64::MAX } else { events[at].answered };
        // Nothing may take effect behind the answer of something that has not yet.
        let limit = (0..events.len()).filter(|at| left(*at)).map(answered).min().unwrap_or(u64::MAX);
        for (at, event) in events.iter().enumerate().filter(|(at, _)| left(*at)) {
            if event.called > limit {
                continue;
            }
            let (answer, next) = apply(&event.operation, &state);
            if event.answer == Answer::Unknown || event.answer == answer {
                open.push((done | 1 << at, next));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(operation: Operation, answer: Answer, called: u64, answered: u64) -> Event {
        Event { operation, answer, called, answered }
    }

    #[test]
    fn what_cannot_be_explained_is_found() {
        let (empty, one) = (State::new(), State::from([("a", 1)]));
        let create = |called, answered| event(Operation::Create { name: "a", mark: 1 }, Answer::Done, called, answered);
        let delete =
            |called, answered| event(Operation::Delete { name: "a", expected: None }, Answer::Done, called, answered);
        let get = |answer, called, answered| event(Operation::Get { name: "a" }, answer, called, answered);
        assert!(is_linearizable(&[create(1, 2), get(Answer::Found(1), 3, 4)], &empty, &one));
        assert!(!is_linearizable(&[create(1, 2), get(Answer::NotFound, 3, 4)], &empty, &one), "a stale read");
        assert!(is_linearizable(&[create(1, 4), get(Answer::NotFound, 2, 3)], &empty, &one));
        assert!(!is_linearizable(&[create(1, 5), delete(2, 3)], &empty, &one), "created twice");
        assert!(is_linearizable(&[create(1, 5), delete(2, 3)], &empty, &empty));
        let lost = event(Operation::Delete { name: "a", expected: None }, Answer::Unknown, 1, 2);
        assert!(is_linearizable(std::slice::from_ref(&lost), &one, &one) && is_linearizable(&[lost], &one, &empty));
        let two = [
            event(Operation::Update { name: "a", mark: 2, expected: Some(1) }, Answer::Done, 1, 5),
            event(Operation::Update { name: "a", mark: 3, expected: Some(1) }, Answer::Done, 2, 6),
        ];
        assert!(!is_linearizable(&two, &one, &State::from([("a", 3)])), "both saw the same revision");
        let moved = [
            event(Operation::Move { name: "a", to: "b", mark: 2 }, Answer::Done, 1, 6),
            get(Answer::NotFound, 2, 3),
            event(Operation::Get { name: "b" }, Answer::NotFound, 4, 5),
        ];
        assert!(!is_linearizable(&moved, &one, &State::from([("b", 2)])), "nowhere for a moment");
    }
}
