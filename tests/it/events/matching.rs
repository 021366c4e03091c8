//! Comparing an answer with what is expected of it: by subset, with a few words for what cannot be written down.

use serde_json::Value;

/// Whether `found` is what `expected` asks for; the error names the place. Rules: `events/samples.py`.
pub fn check(expected: &Value, found: &Value) -> Result<(), String> {
    check_at("answer", expected, Some(found))
}

fn check_at(place: &str, expected: &Value, found: Option<&Value>) -> Result<(), String> {
    if let Some(outcome) = check_word(place, expected, found) {
        return outcome;
    }
    let Some(found) = found else { return Err(format!("{place} is missing; expected {expected}")) };
    match (expected, found) {
        (Value::Object(members), Value::Object(_)) => {
            members.iter().try_for_each(|(name, member)| check_at(&format!("{place}.{name}"), member, found.get(name)))
        }
        (Value::Array(wanted), Value::Array(entries)) if wanted.len() == entries.len() => wanted
            .iter()
            .zip(entries)
            .enumerate()
            .try_for_each(|(index, (wanted, entry))| check_at(&format!("{place}[{index}]"), wanted, Some(entry))),
        _ if expected == found => Ok(()),
        _ => Err(format!("{place} is {found}; expected {expected}")),
    }
}

/// An object whose only member begins with `$` is a word.
fn check_word(place: &str, expected: &Value, found: Option<&Value>) -> Option<Result<(), String>> {
    let (word, argument) = expected.as_object().filter(|members| members.len() == 1)?.iter().next()?;
    let is_there = found.is_some_and(|found| !found.is_null());
    let holds = match word.as_str() {
        "$any" => is_there,
        "$absent" => !is_there,
        "$contains" => found?.as_str()?.contains(argument.as_str()?),
        "$each" => {
            let entries = found?.as_array()?;
            let has_match = |wanted: &Value| entries.iter().any(|entry| check_at(place, wanted, Some(entry)).is_ok());
            argument.as_array()?.iter().all(has_match)
        }
        _ => return None,
    };
    let shown = found.map_or_else(|| "missing".to_owned(), Value::to_string);
    Some(if holds { Ok(()) } else { Err(format!("{place} is {shown}; expected {expected}")) })
}

#[test]
fn words_and_subsets() {
    use serde_json::json;
    let found = json!({"a": 1, "b": ["x", "yz"], "c": null, "d": {"e": "text"}});
    for good in [
        json!({}),
        json!({"a": 1}),
        json!({"b": ["x", {"$contains": "y"}]}),
        json!({"b": {"$each": ["yz"]}}),
        json!({"c": {"$absent": true}, "z": {"$absent": true}, "d": {"$any": true}}),
        json!({"$any": true}),
    ] {
        assert_eq!(check(&good, &found), Ok(()), "{good}");
    }
    for (bad, place) in [
        (json!({"a": 2}), "answer.a is 1"),
        (json!({"b": ["x"]}), "answer.b is"),
        (json!({"b": {"$each": ["q"]}}), "answer.b is"),
        (json!({"c": {"$any": true}}), "answer.c is null"),
        (json!({"d": {"$absent": true}}), "answer.d is"),
        (json!({"d": {"e": {"$contains": "q"}}}), "answer.d.e is"),
        (json!({"z": {"e": 1}}), "answer.z is missing"),
    ] {
        let difference = check(&bad, &found).unwrap_err();
        assert!(difference.starts_with(place), "{difference}");
    }
}
