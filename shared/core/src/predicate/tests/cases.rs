//! The table of cases.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::glue::GlueException;

struct Sample {
    keys: Vec<KeyColumn>,
    rows: Vec<Vec<String>>,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The rows of a sample that are asked for, found by its plan as a listing would.
fn select(sample: &Sample, expression: &str, mode: Mode) -> Result<Vec<Vec<String>>, GlueException> {
    let compiled = compile(expression, &sample.keys, mode)?;
    let layout = Layout::of_table(&types(&sample.keys), sample.keys.len());
    let plan = plan(&compiled, &layout, 16);
    let order: Vec<usize> = (0..sample.keys.len()).collect();
    let mut rows: Vec<(Vec<u8>, &Vec<String>)> =
        sample.rows.iter().map(|row| (key_of(&types(&sample.keys), &order, row), row)).collect();
    rows.sort();
    for probe in &plan.probes {
        for (_, row) in rows.iter().filter(|(key, _)| probe.range.contains(key)) {
            compiled.evaluate(row)?;
        }
    }
    let mut found = Vec::new();
    for (_, row) in rows.iter().filter(|(key, _)| plan.ranges.iter().any(|range| range.contains(key))) {
        if compiled.evaluate(row)? {
            found.push((*row).clone());
        }
    }
    Ok(found)
}

#[test]
fn every_case() {
    let table: Value = serde_json::from_str(include_str!("../cases.json")).unwrap();
    let samples: BTreeMap<&str, Sample> = table["tables"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, sample)| {
            let keys = sample["keys"].as_array().unwrap().iter().map(texts);
            let keys = keys.map(|key| KeyColumn { name: key[0].clone(), type_name: key[1].clone() }).collect();
            let rows = sample["partitions"].as_array().unwrap().iter().map(texts).collect();
            (name.as_str(), Sample { keys, rows })
        })
        .collect();
    let mut failures = Vec::new();
    let cases = table["cases"].as_array().unwrap();
    for case in cases {
        let expression = case["expression"].as_str().unwrap();
        let sample = &samples[case["table"].as_str().unwrap()];
        let mode = if case["mode"] == "strict" { Mode::Strict } else { Mode::Lenient };
        let found = select(sample, expression, mode);
        let expect = &case["expect"];
        let is_met = match (&found, expect["error"].as_str()) {
            (Ok(rows), None) => {
                let mut expected: Vec<_> = expect["values"].as_array().unwrap().iter().map(texts).collect();
                let mut rows = rows.clone();
                rows.sort();
                expected.sort();
                rows == expected
            }
            (Err(error), Some(name)) => {
                error.name.as_str() == name && error.message.contains(expect["message_contains"].as_str().unwrap())
            }
            _ => false,
        };
        if !is_met {
            failures.push(format!("{} {expression}\n  expected {expect}\n  found {found:?}", case["table"]));
        }
    }
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn messages_say_what_and_where() {
    let keys = columns(&[("dt", "date"), ("n", "int"), ("r", "string"), ("f", "float")]);
    for (expression, expected) in [
        (
            "r = 'é' and dt = 2021-01-01",
            "Unsupported expression '2021 - 01 - 01' (at character 18: arithmetic is not supported; a date is written in quotes)",
        ),
        (
            "r IS test' AND not parsable",
            "Unsupported expression 'r IS test' AND not parsable' (at character 10: there is no closing ')",
        ),
        ("r = 'a' or nosuch = 1", "Invalid partition expression!"),
        ("n = 'x'", "For input string: \"x\" is not an integer. (literal for partition key n, at character 5)"),
        ("n like '1%'", "Integral data type doesn't support operation 'LIKE' (partition key n, at character 1)"),
        (
            "f > 1",
            "Unknown type : 'float' (of partition key f, at character 1; filters read string, char, varchar, date, \
             timestamp, decimal, tinyint, smallint, int and bigint)",
        ),
        (
            "n = 1 and (r = 'a'",
            "Unsupported expression 'n = 1 and (r = 'a'' (at character 11: this parenthesis is never closed)",
        ),
        ("n = 1)", "Unsupported expression 'n = 1)' (at character 6: this parenthesis was never opened)"),
        (
            "n between 1 or 2",
            "Unsupported expression 'n between 1 or 2' (at character 13: AND should follow, but there is or)",
        ),
        ("n =", "Unsupported expression 'n =' (at character 4: a literal should follow, but the expression ends)"),
    ] {
        assert_eq!(compile(expression, &keys, Mode::Lenient).unwrap_err().to_string(), expected);
    }
    let unknown = compile("r = 'a' or nosuch = 1", &keys, Mode::Lenient).unwrap_err();
    let hint = "At character 12: nosuch is no partition key; these are: dt, n, r, f";
    assert_eq!(unknown.hint().as_deref(), Some(hint));
    let compiled = compile("n = 1", &keys, Mode::Lenient).unwrap();
    let error = compiled.evaluate(&["2024-01-01", "null", "r", "f"]).unwrap_err();
    assert_eq!(error.to_string(), "For input string: \"null\" is not an integer. (stored value of partition key n)");
}

#[test]
fn names_that_an_expression_says_can_be_asked() {
    let keys = columns(&[("dt", "date"), ("n", "int"), ("r", "string"), ("f", "float")]);
    let compiled = compile("r = 'x' and (N = 1 or 1 = n or r is null)", &keys, Mode::Lenient).unwrap();
    let named: Vec<_> = compiled.named_keys().iter().map(|key| (key.position, key.is_typed())).collect();
    assert_eq!(named, [(1, true), (2, false)]);
}

#[test]
fn rows_of_another_arity_match_nothing() {
    let keys = columns(&[("a", "int"), ("b", "string")]);
    for expression in ["a = 1", "not a = 1", "b is not null"] {
        let compiled = compile(expression, &keys, Mode::Lenient).unwrap();
        for values in [&[][..], &["1"], &["x"], &["1", "x", "y"]] {
            assert_eq!(compiled.evaluate(values), Ok(false));
        }
    }
}

/// A key may be called like any word of the grammar, on both sides of a comparison and in every predicate.
#[test]
fn keywords_are_names_wherever_a_name_can_stand() {
    let words = [
        "not",
        "and",
        "or",
        "in",
        "between",
        "like",
        "is",
        "escape",
        "null",
        "true",
        "false",
        "date",
        "timestamp",
        "key",
        "order",
        "group",
        "index",
        "end",
        "set",
        "values",
        "table",
        "select",
        "where",
        "interval",
        "exists",
        "case",
    ];
    for word in words {
        let keys = columns(&[(word, "string"), ("n", "int")]);
        let upper = word.to_uppercase();
        for expression in [
            format!("{word} = 'x'"),
            format!("'x' = {word}"),
            format!("'x' = {upper}"),
            format!("'w' < {word} and 'y' > {word}"),
            format!("('x') = ({word})"),
            format!("('x' = {word}) or n = 2"),
            format!("n = 1 and 'x' = {word}"),
            format!("not 'y' = {word} (and) n = 1"),
            format!("not {word} = 'y'"),
            format!("{word} in ('x', 'z') and {word} like 'x%' and {word} is not null"),
            format!("{word} not in ('y') and {word} between 'w' and 'y' and not {word} is null"),
            format!("`{word}` = 'x' and 'x' = `{word}`"),
            format!("\"{word}\" = 'x' and 'x' = \"{word}\""),
            format!("(({word}) = ('x')) (AND) (({word}) != ('y'))"),
        ] {
            let compiled =
                compile(&expression, &keys, Mode::Lenient).unwrap_or_else(|error| panic!("{expression}: {error}"));
            assert_eq!(compiled.evaluate(&["x", "1"]), Ok(true), "{expression}");
            assert_eq!(compiled.evaluate(&["y", "1"]), Ok(false), "{expression}");
        }
    }
}

/// What is no name stays an error that says so.
#[test]
fn a_keyword_in_place_of_a_literal_is_refused() {
    let keys = columns(&[("k", "string"), ("not", "string")]);
    for expression in [
        "k = and k = 'x'",
        "k = or",
        "'x' = and k = 'x'",
        "k in (not)",
        "k between 'a' and",
        "k like is",
        "'x' = not 'y'",
    ] {
        let error = compile(expression, &keys, Mode::Lenient).unwrap_err();
        assert!(
            matches!(error, PredicateError::Unsupported { .. } | PredicateError::UnknownKey { .. }),
            "{expression}: {error}"
        );
    }
}
