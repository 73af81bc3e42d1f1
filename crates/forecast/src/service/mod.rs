//! Forecasts for many callers from one trained model.
//!
//! A [`Service`] has one thread with the model's programs, warm, one for each batch size. Callers give it windows of
//! values; those that wait at the same time go through the model together. Results are remembered, so that a window
//! that comes again costs a look-up. A [`Stream`] is a window that moves on with every new observation.
//!
//! ```no_run
//! use gatework_forecast::service::{Service, Settings};
//!
//! let service = Service::open("runs/airpassengers".as_ref(), &Settings::default())?;
//! let history: Vec<f64> = (0..144).map(|month| 100.0 + f64::from(month)).collect();
//! let prediction = service.predict("Passengers", &history)?;
//! println!("{:?}, then {:?}", prediction.values, service.statistics());
//! # Ok::<(), gatework_forecast::service::ServiceError>(())
//! ```

mod batching;
mod cache;
mod stream;

pub use batching::{Service, ServiceError, Settings};
pub use cache::{Cache, Statistics};
pub use stream::Stream;

pub use crate::prediction::{Interval, Prediction};
