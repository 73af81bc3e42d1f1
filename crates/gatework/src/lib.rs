//! Gatework as a library: trained forecasters, served.
//!
//! | module | what is in it |
//! |---|---|
//! | [`predict`] | forecasts for many callers: warm programs, a cache of results, batches of concurrent requests, streams |

pub mod predict;
