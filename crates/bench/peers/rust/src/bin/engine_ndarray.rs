//! ndarray on the operations of the engine, into preallocated outputs. With several threads, long arrays are processed in
//! parallel by its rayon methods.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

use gatework_peers::engine::{measure, Call, Library};
use gatework_peers::{report, run, Failure, Options};
use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView1, Axis, Zip};

/// Shorter arrays are not worth a second thread.
const WORTH_THREADS: usize = 1 << 15;

struct Ndarray {
    threads: usize,
}

/// A call that writes its answer.
fn call<T: 'static>(out: T, compute: impl Fn(&mut T) + Clone + 'static, read: fn(&T) -> Vec<f32>) -> Call {
    let out = Rc::new(RefCell::new(out));
    let (shared, again) = (out.clone(), compute.clone());
    let run = move || {
        compute(&mut shared.borrow_mut());
        read(&shared.borrow())
    };
    let time = move || {
        again(black_box(&mut out.borrow_mut()));
    };
    Call { run: Box::new(run), time: Box::new(time) }
}

impl Ndarray {
    /// Elements of a share, if there is to be more than one.
    fn share(&self, n: usize) -> Option<usize> {
        (self.threads > 1 && n >= WORTH_THREADS).then(|| n.div_ceil(self.threads))
    }

    fn elementwise(&self, a: Array1<f32>, f: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static) -> Call {
        let (out, share) = (Array1::zeros(a.len()), self.share(a.len()));
        call(out, move |out| apply(&a, out, share, f), |out| out.to_vec())
    }

    fn pairs(
        &self,
        (a, b): (Array1<f32>, Array1<f32>),
        f: impl Fn(f32, f32) -> f32 + Copy + Send + Sync + 'static,
    ) -> Call {
        let (out, share) = (Array1::zeros(a.len()), self.share(a.len()));
        let compute = move |out: &mut Array1<f32>| {
            let zip = Zip::from(out).and(&a).and(&b);
            match share {
                Some(_) => zip.par_for_each(|out, &a, &b| *out = f(a, b)),
                None => zip.for_each(|out, &a, &b| *out = f(a, b)),
            }
        };
        call(out, compute, |out| out.to_vec())
    }

    fn sum(&self, a: Array1<f32>) -> Call {
        let share = self.share(a.len());
        call(0.0, move |out| *out = sum(a.view(), share), |out| vec![*out])
    }

    fn dot(&self, a: Array1<f32>, b: Array1<f32>) -> Call {
        let share = self.share(a.len());
        let compute = move |out: &mut f32| {
            *out = match share {
                Some(share) => {
                    let (a, b) = (a.axis_chunks_iter(Axis(0), share), b.axis_chunks_iter(Axis(0), share));
                    a.into_par_iter().zip(b.into_par_iter()).map(|(a, b)| a.dot(&b)).sum()
                }
                None => a.dot(&b),
            };
        };
        call(0.0, compute, |out| vec![*out])
    }

    fn softmax(&self, a: Array1<f32>) -> Call {
        let (out, share) = (Array1::zeros(a.len()), self.share(a.len()));
        let compute = move |out: &mut Array1<f32>| {
            let most = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            apply(&a, out, share, |a| (a - most).exp());
            *out /= sum(out.view(), share);
        };
        call(out, compute, |out| out.to_vec())
    }
}

fn apply(a: &Array1<f32>, out: &mut Array1<f32>, share: Option<usize>, f: impl Fn(f32) -> f32 + Send + Sync) {
    let zip = Zip::from(out).and(a);
    match share {
        Some(_) => zip.par_for_each(|out, &a| *out = f(a)),
        None => zip.for_each(|out, &a| *out = f(a)),
    }
}

fn sum(a: ArrayView1<'_, f32>, share: Option<usize>) -> f32 {
    match share {
        Some(share) => a.axis_chunks_iter(Axis(0), share).into_par_iter().map(|part| part.sum()).sum(),
        None => a.sum(),
    }
}

impl Library for Ndarray {
    fn operation(&self, name: &str, a: &[f32], b: &[f32]) -> Result<Option<Call>, Failure> {
        let (a, b) = (Array1::from(a.to_vec()), Array1::from(b.to_vec()));
        Ok(Some(match name {
            "add" => self.pairs((a, b), |a, b| a + b),
            "mul" => self.pairs((a, b), |a, b| a * b),
            "relu" => self.elementwise(a, |a| a.max(0.0)),
            "exp" => self.elementwise(a, f32::exp),
            "tanh" => self.elementwise(a, f32::tanh),
            "sigmoid" => self.elementwise(a, |a| 1.0 / (1.0 + (-a).exp())),
            "sum" => self.sum(a),
            "dot" => self.dot(a, b),
            "softmax" => self.softmax(a),
            _ => return Ok(None),
        }))
    }

    fn product(&self, [m, n, k]: [usize; 3], a: &[f32], b: &[f32]) -> Result<Call, Failure> {
        let a = Array2::from_shape_vec((m, k), a.to_vec())?;
        let b = Array2::from_shape_vec((k, n), b.to_vec())?;
        let compute = move |out: &mut Array2<f32>| general_mat_mul(1.0, &a, &b, 0.0, out);
        Ok(call(Array2::zeros((m, n)), compute, |out| out.iter().copied().collect()))
    }

    fn chain(&self, _: &[f32]) -> Result<Option<Call>, Failure> {
        Ok(None) // It has no gelu.
    }
}

fn main() {
    run(|| {
        let options = Options::read(0.01)?;
        let rows = measure(&options, &Ndarray { threads: options.threads })?;
        let how = "outputs preallocated, Zip and general_mat_mul; rayon for long arrays";
        report("engine", "ndarray", gatework_peers::NDARRAY, how, rows);
        Ok(())
    });
}
