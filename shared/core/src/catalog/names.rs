//! Names of databases, tables and columns are folded to lower case when stored and when looked up.

/// The stored form of a name.
pub fn fold(name: &str) -> String {
    name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_twice_changes_nothing() {
        for name in ["MixedCase", "ÄÖÜ", "İstanbul", "already lower", "ΣΑΣ"] {
            assert_eq!(fold(&fold(name)), fold(name), "{name}");
        }
    }
}
