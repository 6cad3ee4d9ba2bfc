//! Whether an engine shows life, and how to wait for the moment from which it shows none.

use std::future::pending;

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Liveness {
    #[default]
    Responsive,
    Hung,
    Lost,
}

/// Waits until an engine shows no sign of life. What ends otherwise is noticed by its session's end.
pub(crate) async fn until_hung(mut liveness: watch::Receiver<Liveness>) {
    if liveness.wait_for(|now| *now != Liveness::Responsive).await.is_err() {
        pending().await
    }
}
