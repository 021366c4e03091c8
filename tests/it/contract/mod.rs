//! One contract for the ports in memory and for the AWS adapters on the embedded servers: whatever rules are tested in
//! memory hold on the real protocols as well. A check is a function over the trait; what it counts is pinned on both.

/// Runs every check of a module against each implementation, as tests of their own.
macro_rules! contract {
    ($($bench:ident),+ => $($check:ident),+ $(,)?) => {
        contract!(@each [$($bench),+] [$($check),+]);
    };
    (@each [$bench:ident $(, $rest:ident)*] [$($check:ident),+]) => {
        mod $bench {
            $(
                #[tokio::test]
                async fn $check() {
                    let bench = super::$bench().await;
                    super::$check(&bench).await;
                }
            )+
        }
        contract!(@each [$($rest),*] [$($check),+]);
    };
    (@each [] [$($check:ident),+]) => {};
}

mod app;
mod items;
mod objects;
mod queue;
