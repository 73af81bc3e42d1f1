//! The time of each kernel.

use std::fmt;
use std::time::Duration;

use super::Runner;

/// The shortest time of each kernel in a number of runs. Its `Display` form is a table with the slowest kernel first.
#[derive(Clone, Debug)]
pub struct Timings {
    /// Description, shortest time and memory traffic in bytes of each kernel.
    pub kernels: Vec<(String, Duration, usize)>,
}

impl Runner {
    /// Runs the program `runs` times and measures every kernel.
    pub fn timings(&mut self, runs: usize) -> Timings {
        let mut best = self.run_timed();
        for _ in 1..runs {
            best.iter_mut().zip(self.run_timed()).for_each(|(best, time)| *best = time.min(*best));
        }
        let rows = self.program.kernels().into_iter().zip(best).zip(self.program.traffic());
        Timings { kernels: rows.map(|((kernel, time), bytes)| (kernel, time, bytes)).collect() }
    }
}

impl Timings {
    /// The total over all kernels.
    pub fn total(&self) -> Duration {
        self.kernels.iter().map(|(_, time, _)| time).sum()
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.kernels.iter().collect();
        rows.sort_by_key(|(_, time, _)| std::cmp::Reverse(*time));
        let total = self.total().as_secs_f64();
        writeln!(f, "{:>10} {:>6} {:>7}  kernel", "us", "share", "GB/s")?;
        for (kernel, time, bytes) in rows {
            let seconds = time.as_secs_f64();
            let (share, rate) = (100.0 * seconds / total, *bytes as f64 / seconds / 1e9);
            writeln!(f, "{:>10.1} {share:>5.1}% {rate:>7.1}  {kernel}", seconds * 1e6)?;
        }
        writeln!(f, "{:>10.1} total", total * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Graph, Program};

    #[test]
    fn timings_list_every_kernel_and_keep_the_results() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[8, 8]).unwrap();
        let product = g.matmul(x, x).unwrap();
        let y = g.exp(product).unwrap();
        g.output("y", y).unwrap();
        let program = Program::new(&g).unwrap();
        let mut runner = program.runner();
        runner.write("x", &[0.125f32; 64]).unwrap();
        let timings = runner.timings(3);
        let table = timings.to_string();
        assert_eq!(timings.kernels.len(), program.kernels().len());
        assert!(program.kernels().iter().all(|kernel| table.contains(kernel)), "{table}");
        assert!((runner.read::<f32>("y").unwrap()[0] - 0.125f32.exp()).abs() < 1e-6);
    }
}
