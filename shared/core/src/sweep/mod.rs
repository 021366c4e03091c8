//! Orphan files: optimizers, reference sets, guards, runs.
