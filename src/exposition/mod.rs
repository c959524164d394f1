//! Rendering a [`crate::status::Status`]: pure functions from the picture and a time to text.
//!
//! Nothing here scans, reads or knows the clock; what `now` means is the caller's business.

pub mod configuration;
pub mod format;
pub mod json;
mod machine;
pub mod metrics;
pub mod openmetrics;
pub mod overview;
pub mod page;
mod refused;
pub mod table;
mod view;
