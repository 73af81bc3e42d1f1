//! The time of each kernel.

use std::fmt;
use std::time::Duration;

use super::Runner;
use crate::instruction::Instruction;

/// The time of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// What it computes, with the operations that are fused into it.
    pub kernel: String,
    /// The shortest time of all runs.
    pub time: Duration,
    /// Bytes that it reads and writes. What is read repeatedly counts once.
    pub bytes: usize,
}

/// The shortest time of each kernel in a number of runs. Its `Display` form is a table of time, share of the total, memory traffic
/// and kernel, with the slowest kernel first:
///
/// ```
/// # use gatework_engine::{DType, Scope};
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[64, 64]);
/// let mut runner = scope.compile(&[("y", x.matmul(x).exp())])?.runner();
/// println!("{}", runner.timings(10));
/// # Ok::<(), gatework_engine::program::ProgramError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timings {
    /// The kernels, in the order of the program.
    pub kernels: Vec<KernelTime>,
}

impl Runner {
    /// Runs the program `runs` times, at least once, and measures every kernel.
    pub fn timings(&mut self, runs: usize) -> Timings {
        let mut best = self.run_timed();
        for _ in 1..runs {
            best.iter_mut().zip(self.run_timed()).for_each(|(best, time)| *best = time.min(*best));
        }
        let rows = self.program.instructions.iter().zip(best);
        let row = |(instruction, time): (&Instruction, Duration)| KernelTime {
            kernel: instruction.describe_fused(),
            time,
            bytes: instruction.get().traffic(),
        };
        Timings { kernels: rows.map(row).collect() }
    }
}

impl Timings {
    /// The total over all kernels.
    pub fn total(&self) -> Duration {
        self.kernels.iter().map(|row| row.time).sum()
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<&KernelTime> = self.kernels.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        // A clock may be too coarse for a kernel.
        let total = self.total().as_secs_f64().max(1e-9);
        writeln!(f, "{:>10} {:>6} {:>9} {:>7}  kernel", "us", "share", "KB", "GB/s")?;
        for KernelTime { kernel, time, bytes } in rows {
            let (seconds, bytes) = (time.as_secs_f64(), *bytes as f64);
            let (share, kilobytes) = (100.0 * seconds / total, bytes / 1e3);
            let rate = bytes / seconds.max(1e-9) / 1e9;
            writeln!(f, "{:>10.1} {share:>5.1}% {kilobytes:>9.1} {rate:>7.1}  {kernel}", seconds * 1e6)?;
        }
        writeln!(f, "{:>10.1} {:>24}  total", total * 1e6, "")
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
        assert!(table.contains("(exp)") && table.contains("share"), "{table}");
        assert_eq!(table.lines().count(), program.kernels().len() + 2);
        assert!((runner.read::<f32>("y").unwrap()[0] - 0.125f32.exp()).abs() < 1e-6);
    }
}
