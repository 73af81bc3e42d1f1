//! A trained network behind a shared reference: the one place with interior mutability, so that several threads can use a
//! [`Forecaster`](crate::Forecaster).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::data::Batch;
use crate::specification::Specification;
use crate::trained_network::{Forecast, TrainedNetwork};

/// A trained network that one thread at a time runs.
pub(super) struct SharedNetwork {
    specification: Specification,
    parameters: usize,
    state: Mutex<NetworkState>,
}

/// The network and the memory of its last batch.
pub(super) struct NetworkState {
    pub network: TrainedNetwork,
    pub batch: Batch,
    pub forecast: Forecast,
}

impl SharedNetwork {
    pub fn new(network: TrainedNetwork) -> SharedNetwork {
        let (specification, parameters) = (network.specification().clone(), network.params().len());
        let batch = Batch::new(specification.shape(0));
        let state = Mutex::new(NetworkState { network, batch, forecast: Forecast::empty() });
        SharedNetwork { specification, parameters, state }
    }

    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Waits until no other thread runs the network. A thread that panicked leaves no state that a later run would read.
    pub fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get_mut(&mut self) -> &mut TrainedNetwork {
        &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).network
    }

    pub fn into_inner(self) -> TrainedNetwork {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).network
    }
}
