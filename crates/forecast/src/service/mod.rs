//! A thread-safe predictor with request batching and a cache.
//!
//! A [`Service`] owns one thread with the compiled programs of a model. Any thread may request forecasts; requests that
//! wait at the same time run as one batch. Forecasts are cached by the exact bits of their window. A [`Stream`] is a
//! window that advances with every new observation.
//!
//! ```no_run
//! use gatework_forecast::service::{Service, ServiceOptions};
//!
//! let service = Service::open("runs/airpassengers".as_ref(), &ServiceOptions::default())?;
//! let history: Vec<f64> = (0..144).map(|month| 100.0 + f64::from(month)).collect();
//! let prediction = service.predict("Passengers", &history)?;
//! println!("{:?}, then {:?}", prediction.values, service.statistics());
//! # Ok::<(), gatework_forecast::service::ServiceError>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `client` | [`Service`]: checks and scales requests |
//! | `worker` | the thread of the model, request batching and the cache |
//! | `stream` | [`Stream`]: a series with a sliding window |
//! | `error` | [`ServiceError`] |

mod client;
mod error;
mod stream;
mod worker;

pub use client::{Service, ServiceOptions};
pub use error::ServiceError;
pub use stream::Stream;
pub use worker::Statistics;
