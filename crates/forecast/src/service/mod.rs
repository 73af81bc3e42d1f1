//! A thread-safe predictor with request batching and a cache.
//!
//! Any thread may request forecasts from a [`Service`]. The model runs on the threads of the callers, as many at a time as there
//! are processors; further requests wait, and those that wait at the same time run as one batch. The queue is bounded:
//! when it is full, a request fails with [`ServiceError::Busy`] instead of waiting. A [`Stream`] is a window that advances
//! with every new observation.
//!
//! Forecasts are cached by the exact bits of their scaled window. With a [tolerance](ServiceOptions::tolerance) t, a window
//! also gets the forecast of an earlier one if no element differs by more than t times the largest absolute value m of the
//! earlier window. If a forecast of the model changes by at most L when every element of its window changes by at most 1, a
//! cached forecast is wrong by at most L t m in scaled units. No bound of L is known for a network in general; a model that
//! repeats its last value has L = 1, and recurrent models or long horizons have more.
//!
//! ```no_run
//! use gatework_forecast::service::{Service, ServiceOptions};
//!
//! let service = Service::open("runs/airpassengers", &ServiceOptions::default())?;
//! let history: Vec<f64> = (0..144).map(|month| 100.0 + f64::from(month)).collect();
//! let prediction = service.predict("Passengers", &history)?;
//! println!("{:?}, then {:?}", prediction.values, service.statistics());
//! # Ok::<(), gatework_forecast::service::ServiceError>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `client` | [`Service`]: checks and scales requests, runs the model |
//! | `queue` | the queue of requests and request batching |
//! | `cache` | forecasts of earlier windows |
//! | `statistics` | [`Statistics`]: counters, memory and latencies |
//! | `stream` | [`Stream`]: a series with a sliding window |
//! | `error` | [`ServiceError`] |

mod cache;
mod client;
mod error;
mod queue;
mod statistics;
mod stream;

pub use client::{Service, ServiceOptions};
pub use error::ServiceError;
pub use statistics::{Latencies, Statistics};
pub use stream::Stream;
