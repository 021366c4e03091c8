//! Texts that mean harm: nothing panics, nothing exhausts the stack, nothing takes long.

use proptest::prelude::*;

use super::*;

fn try_compile(text: &str) -> Result<Compiled, PredicateError> {
    compile(text, &columns(&[("k", "string"), ("n", "int"), ("d", "decimal(10,2)"), ("t", "timestamp")]), Mode::Lenient)
}

const HUGE: Limits = Limits { length: 10_000_000, depth: 300 };

fn compile_huge(text: &str) -> Result<Compiled, PredicateError> {
    compile_within(text, &columns(&[("k", "string")]), Mode::Lenient, HUGE)
}

#[test]
fn parentheses_and_nots_are_no_depth() {
    for (length, read) in [(1000, try_compile as fn(&str) -> _), (60_000, compile_huge)] {
        for (open, close) in [("(", ")"), ("not ", ""), ("not(", ")"), ("(not ", ")")] {
            let count = length / (open.len() + close.len());
            let text = format!("{}k='x'{}", open.repeat(count), close.repeat(count));
            let compiled = read(&text).unwrap();
            let negations = if open.contains("not") { count } else { 0 };
            let expected = negations % 2 == 0;
            let values = |value| vec![value; compiled.key_count()];
            assert_eq!(compiled.evaluate(&values("x")), Ok(expected), "{open}");
            assert_eq!(compiled.evaluate(&values("y")), Ok(!expected), "{open}");
        }
        for text in ["(".repeat(length), ")".repeat(length), "not ".repeat(length / 4), "((k)".repeat(length / 4)] {
            assert!(matches!(read(&text), Err(PredicateError::Unsupported { .. })));
        }
    }
}

#[test]
fn alternating_nesting_is_bounded_and_never_refused_in_a_legal_length() {
    let nested = |levels: usize| format!("{}k=3{}", "k=1 or(k=2 and(".repeat(levels / 2), "))".repeat(levels / 2));
    let longest = (0..2048).rev().map(nested).find(|text| text.len() <= 2048).unwrap();
    assert!(try_compile(&longest).unwrap().evaluate(&["1", "", "", ""]).unwrap());
    let error = compile_huge(&nested(10_000)).unwrap_err().to_string();
    assert!(error.contains("nested more than 300 deep"), "{error}");
}

#[test]
fn lists_and_chains_of_any_length() {
    let list: Vec<String> = (0..50_000).map(|n| format!("'{n}'")).collect();
    let compiled = compile_huge(&format!("k in ({})", list.join(","))).unwrap();
    assert_eq!(compiled.evaluate(&["49999"]), Ok(true));
    assert_eq!(compiled.evaluate(&["50000"]), Ok(false));
    for (connective, comparison) in [("or", "="), ("and", "<>"), ("or", "like")] {
        let terms: Vec<String> = (0..20_000).map(|n| format!("k {comparison} '{n}'")).collect();
        let compiled = compile_huge(&terms.join(&format!(" {connective} "))).unwrap();
        assert_eq!(compiled.evaluate(&["77"]), Ok(comparison != "<>"));
        let ranges = plan(&compiled, &Layout::of_table(&[], 1), 8).ranges;
        assert!((1..=8).contains(&ranges.len()));
    }
}

#[test]
fn the_length_counts_characters() {
    let of = |length: usize| format!("k = '{}'", "é".repeat(length - 6));
    assert!(try_compile(&of(2048)).is_ok());
    assert_eq!(try_compile(&of(2049)).unwrap_err(), PredicateError::TooLong { length: 2049, max: 2048 });
}

#[test]
fn patterns_take_no_time() {
    let pattern = format!("{}b", "%a".repeat(1000));
    let compiled = try_compile(&format!("k like '{pattern}'")).unwrap();
    assert_eq!(compiled.evaluate(&["a".repeat(1024).as_str(), "1", "1", "1"]), Ok(false));
}

/// Anything at all, and things that look like an expression.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "k",
        "n",
        "d",
        "t",
        "x",
        "(",
        ")",
        "((",
        "))",
        ",",
        "=",
        "<",
        ">",
        "<>",
        "!=",
        "!",
        "+",
        "-",
        "||",
        "*",
        "/",
        "and",
        "or",
        "NOT",
        "in",
        "between",
        "like",
        "is",
        "null",
        "escape",
        "true",
        "date",
        "timestamp",
        "'x'",
        "'",
        "''",
        "\\'",
        "\"k\"",
        "\"",
        "`n`",
        "`",
        "1",
        "-1",
        "1.5",
        "1e3",
        "1e",
        ".",
        "'2024-01-01'",
        "'2024-01-01 00:00:00'",
        "%",
        "_",
        ";",
        "\0",
        "é",
        "😀",
        "\\",
        "__HIVE_DEFAULT_PARTITION__",
    ]);
    prop_oneof![
        any::<String>(),
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.join(" ")),
        "[kn =<>()'\"\\\\andorti0-9.,%_-]{0,60}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_compiled_or_refused(text in any_text(), value in any::<String>()) {
        match try_compile(&text) {
            Ok(compiled) => {
                let _ = compiled.evaluate(&[value.as_str(), "1", "x", &value]);
                let _ = plan(&compiled, &Layout::of_table(&[KeyType::Text, KeyType::Integer], 4), 4);
            }
            Err(PredicateError::Unsupported { position, .. } | PredicateError::UnknownKey { position, .. }) => {
                prop_assert!((1..=text.chars().count() + 1).contains(&position), "{}", position);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
