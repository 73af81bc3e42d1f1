//! Forecasters: train, predict, evaluate, inspect, and error messages.

use gatework_test_support::program::{SALES, assert_says, sales};

use crate::{Place, interrupt, is_clean, wait_for};

fn place() -> Place {
    Place::new("gatework").with_sales()
}

pub fn trained() -> Place {
    let place = place();
    place.run("train sales.toml --out run");
    place
}

#[test]
fn a_run_folder_holds_everything_and_predictions_follow_the_data() {
    let place = place();
    let summary = place.json("train sales.toml --out run");
    assert_eq!((&summary["experiment"], &summary["model"]), (&"sales".into(), &"nlinear".into()));
    assert_eq!(summary["scores"].as_array().unwrap().len(), 6);
    assert_eq!(summary["origins"], 2 * 8);
    for file in
        ["experiment.toml", "metrics.csv", "model.safetensors", "summary.json", "forecast.svg", "loss.svg"]
    {
        assert!(!place.read(&format!("run/{file}")).is_empty(), "{file}");
    }
    assert!(is_clean(&place.path("run")));
    let metrics = place.text("run/metrics.csv");
    assert!(metrics.starts_with("seed,update,learning_rate,training_loss,validation_loss\n1,0,0.01,"));
    place.run("predict run sales.csv -o out.csv --plot out.svg");
    let forecast = place.text("out.csv");
    let lines: Vec<&str> = forecast.lines().collect();
    assert_eq!(lines[0], "unique_id,ds,forecast,low_80,high_80,low_95,high_95");
    assert_eq!(lines.len(), 1 + 2 * 7);
    assert!(lines[1].starts_with("north,80,") && lines[8].starts_with("\"south, small\",80,"));
    assert!(place.read("out.svg").starts_with(b"<svg"));
    for line in &lines[1..8] {
        let numbers: Vec<f64> = line.split(',').skip(2).map(|x| x.parse().unwrap()).collect();
        let [value, low, high, lower, higher] = numbers[..] else { panic!("{line}") };
        assert!(lower <= low && low <= value && value <= high && high <= higher, "{line}");
        assert!((150.0..280.0).contains(&value), "{line}");
    }
}

#[test]
fn threads_and_interruptions_do_not_change_a_bit() {
    let place = place();
    for (out, threads) in [("one", "1"), ("two", "2")] {
        place.run(&format!("train sales.toml --out {out} --threads {threads}"));
    }
    for file in ["model.safetensors", "metrics.csv", "forecast.svg"] {
        assert_eq!(place.read(&format!("one/{file}")), place.read(&format!("two/{file}")), "{file}");
    }
    assert_says(&place.stderr("train sales.toml --out one --resume"), &["one is finished"]);
}

#[test]
fn a_run_that_was_interrupted_goes_on_and_ends_with_the_same_bits() {
    let place = place();
    place.write("long.toml", &SALES.replace("epochs = 20", "epochs = 4000"));
    place.run("train long.toml --out whole");
    let mut child = place.spawn("train long.toml --out parts", std::process::Stdio::null());
    wait_for(&mut child, || place.path("parts/checkpoint").exists());
    // The result is the same wherever training is by now, even at its end.
    std::thread::sleep(std::time::Duration::from_millis(50));
    interrupt(&child);
    child.wait().unwrap();
    place.run("train long.toml --out parts --resume");
    for file in ["model.safetensors", "metrics.csv", "forecast.svg"] {
        assert_eq!(place.read(&format!("whole/{file}")), place.read(&format!("parts/{file}")), "{file}");
    }
}

#[test]
fn a_run_does_not_go_on_with_other_data() {
    let place = trained();
    std::fs::remove_file(place.path("run/summary.json")).unwrap();
    let sales = sales();
    let resume = "train sales.toml --out run --resume";
    place.write("sales.csv", &sales.replacen(",1", ",2", 1));
    assert_says(&place.refused(2, resume), &["the data have changed since run began", "--force"]);
    place.write("sales.csv", &sales);
    place.run(resume);
}

#[test]
fn a_forecast_says_what_it_wrote_and_which_table_is_not_there() {
    let place = trained();
    let said = place.stderr("predict run sales.csv -o next.csv --plot next.svg");
    assert_says(&said, &["Wrote next.csv", "Wrote next.svg"]);
    assert_says(&place.refused(2, "predict run other.csv"), &["cannot read other.csv"]);
}

#[test]
fn forecasts_replace_nothing_that_is_needed() {
    let place = trained();
    for (outputs, message) in [
        ("-o run/../run/metrics.csv", "would overwrite run/metrics.csv"),
        ("-o f.csv --plot run/forecast.svg", "would overwrite run/forecast.svg"),
        ("-o model.parquet", "name a file that ends in .csv"),
        ("--plot x.png", "name a file that ends in .svg"),
        ("--plot -", "name a file that ends in .svg"),
        ("-o run/checkpoint/data.txt", "would overwrite run/checkpoint/data.txt"),
    ] {
        assert_says(&place.refused(2, &format!("predict run sales.csv {outputs}")), &[message]);
    }
    assert!(place.stdout("predict run sales.csv -o -").starts_with("unique_id,ds,forecast"));
    assert!(!place.path("-").exists());
}

#[test]
fn series_that_are_too_short_are_left_out_if_asked_for() {
    let place = trained();
    let short = "\"south, small\",0,20\n\"south, small\",1,21\n";
    let all = sales();
    let north = &all[..all.find("\"south").unwrap()];
    place.write("new.csv", &format!("{north}{short}"));
    let predict = "predict run new.csv -o f.csv";
    assert_says(&place.refused(1, predict), &["\"south, small\" has 2 values", "reads 14"]);
    let said = place.json(&format!("{predict} --leave-out-short"));
    assert_eq!(said["series"], 1);
    place.write("new.csv", &format!("unique_id,ds,y\n{short}"));
    assert_says(&place.refused(2, "predict run new.csv --leave-out-short"), &["every series is too short"]);
}

#[test]
fn gaps_in_new_data_are_filled_if_asked_for() {
    let place = trained();
    place.write("new.csv", &sales().replace("\"north\",70,170\n", ""));
    let refused = place.refused(1, "predict run new.csv");
    assert_says(&refused, &["1 of its times before 71 are missing", "--missing drop"]);
    place.run("predict run new.csv --missing forward-fill");
}

#[test]
fn a_corrupt_parquet_file_is_refused_by_name() {
    let place = trained();
    place.write("corrupt.parquet", "PAR1 and nothing else, PAR1");
    let said = place.refused(1, "predict run corrupt.parquet");
    assert!(said.starts_with("error: corrupt.parquet: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_forecaster_is_exported_as_onnx_and_as_nothing_else() {
    let place = trained();
    let result = place.json("export run -o a.onnx");
    assert_eq!((&result["format"], &result["file"]), (&"onnx".into(), &"a.onnx".into()));
    let bytes = place.read("a.onnx");
    let has = |part: &str| bytes.windows(part.len()).any(|bytes| bytes == part.as_bytes());
    assert!(has("history") && has("forecast") && has(r#"["north","south, small"]"#));
    let output = place.run("export run --to onnx");
    assert_eq!(output.stdout, bytes, "stdout and file are the same");
    place.run("export run/model.safetensors --to ONNX -o b");
    assert_eq!(place.read("b"), bytes);
    place.run("export run -o c.onnx --name other");
    assert_eq!(place.read("c.onnx").len(), bytes.len());
    assert_says(&place.refused(2, "export run -o x.v"), &["run of a forecaster", "export to onnx"]);
    assert_says(&place.refused(2, "export run -o x.onnx --minimize"), &["--minimize", "circuits"]);
    assert_says(&place.refused(2, "export nowhere -o x.onnx"), &["nowhere does not exist"]);
    let sampled = SALES.replace("'nlinear'", "{ kind = 'deepar', hidden = 4 }\nloss = 'gaussian'");
    place.write("sampled.toml", &sampled.replace("epochs = 20", "epochs = 1"));
    place.run("train sampled.toml --out sampled");
    assert_says(&place.refused(2, "export sampled -o x.onnx"), &["deepar", "random numbers"]);
    assert!(!place.path("x.onnx").exists() && is_clean(&place.path("")));
}

#[test]
fn evaluate_inspect_and_list_know_forecasters() {
    let place = trained();
    let scores = place.json("evaluate run --subset validation --step 7");
    assert_eq!(scores["windows"], 2 * 2);
    let names: Vec<&str> =
        scores["scores"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["nlinear", "naive", "seasonal naive", "drift", "naive2", "theta"]);
    let facts = place.json("inspect run");
    assert_eq!(
        (&facts["model"], &facts["horizon"], &facts["season"]),
        (&"nlinear".into(), &7.into(), &7.into())
    );
    let list = place.json("list");
    let names = list["experiments"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap());
    assert!(names.into_iter().any(|name| name == "airpassengers"));
    assert_says(&place.refused(2, "simulate run"), &["is the run of a forecaster"]);
}

#[test]
fn inspect_shows_the_program_that_forecasts() {
    let place = trained();
    let facts = place.json("inspect run --program 32");
    let program = &facts["programs"][0];
    let kernels: Vec<&str> =
        program["kernels"].as_array().unwrap().iter().map(|row| row["kernel"].as_str().unwrap()).collect();
    // The linear model is one GEMM; everything else is fused into loops around it.
    assert_eq!(
        kernels.iter().filter(|kernel| kernel.starts_with("matmul f32 32x")).count(),
        1,
        "{kernels:?}"
    );
    assert!(kernels.iter().all(|kernel| kernel.starts_with("matmul") || kernel.starts_with("loop")));
    let moved: u64 =
        program["kernels"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(program["moved_bytes"], moved);
    assert!(program["memory_bytes"].as_u64().unwrap() > 0);
    let one = place.json("inspect run");
    assert_ne!(one["programs"][0]["fingerprint"], program["fingerprint"], "another number of windows");
    assert_says(&place.refused(2, "inspect run --program 0"), &["a number of windows from 1 to 256"]);
}

#[test]
fn several_seeds_have_a_mean_and_a_spread_and_the_best_is_kept() {
    let place = place();
    let summary = place.json("train sales.toml --out run --seeds 3");
    let losses = &summary["seeds"]["figures"]["validation_loss"];
    let values: Vec<f64> = losses["values"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert_eq!((values.len(), &summary["seeds"]["seeds"]), (3, &serde_json::json!([1, 2, 3])));
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(summary["validation_loss"].as_f64().unwrap(), least);
    assert_eq!(values[summary["seed"].as_u64().unwrap() as usize - 1], least);
    assert!((losses["mean"].as_f64().unwrap() - values.iter().sum::<f64>() / 3.0).abs() < 1e-12);
    let again = place.json("train sales.toml --out run --seeds 3 --resume");
    assert_eq!(again["seeds"], summary["seeds"], "it is finished");
    // The second seed alone is the same run.
    let alone = place.json("train sales.toml --out alone --seed 2");
    assert_eq!(alone["validation_loss"].as_f64().unwrap(), values[1]);
}

#[test]
fn weights_of_fewer_bits_say_what_they_cost() {
    let place = trained();
    let numbers = |name: &str| {
        let text = place.text(name);
        text.lines()
            .skip(1)
            .map(|line| line.rsplit(',').nth(4).unwrap().parse().unwrap())
            .collect::<Vec<f64>>()
    };
    place.run("predict run sales.csv -o full.csv");
    for (format, share, near) in [("f16", 0.5, 1e-3), ("int8", 0.45, 1e-2)] {
        let said = place.json(&format!("predict run sales.csv -o out.csv --weights {format}"));
        let cost = &said["weights"];
        let number = |name: &str| cost[name].as_f64().unwrap();
        assert!(number("bytes") <= share * number("bytes_before"), "{cost}");
        assert!((number("mae") - number("mae_before")).abs() < 0.1 * number("mae_before"), "{cost}");
        let (full, rounded) = (numbers("full.csv"), numbers("out.csv"));
        assert_ne!(full, rounded);
        assert!(full.iter().zip(&rounded).all(|(a, b)| (a - b).abs() < near * a.abs()), "{rounded:?}");
    }
}

#[test]
fn runs_are_evaluated_together() {
    let place = trained();
    place.run("train sales.toml --out other --seed 2");
    let scores = place.json("evaluate run other");
    assert_eq!((&scores["scores"][0]["name"], &scores["windows"]), (&"median of 2".into(), &16.into()));
    place.run("train airpassengers --out air --epochs 2");
    assert_says(&place.refused(2, "evaluate run air"), &["air has other data than run"]);
}

#[test]
fn data_of_the_environment_are_found_or_asked_for() {
    let place = place();
    place.write("env.toml", &SALES.replace("sales.csv", "$GATEWORK_DATA/sales.csv"));
    let mut without = place.command("train env.toml --out x");
    let output = without.env_remove("GATEWORK_DATA").assert().code(1).get_output().clone();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("the environment variable $GATEWORK_DATA is not set"), "{message}");
    place.command("train env.toml --out x").env("GATEWORK_DATA", place.path("")).assert().success();
    // The run folder has the path of its data.
    place.json("evaluate x");
}

#[test]
fn what_is_wrong_with_new_data_is_named() {
    let place = trained();
    let predict = |text: &str| {
        place.write("new.csv", text);
        place.refused(1, "predict run new.csv")
    };
    let short = predict("unique_id,ds,y\nnorth,1,1\nnorth,2,1\nnorth,3,1\n");
    assert!(
        short.contains("series \"north\" has 3 values without a gap at its end, but the model reads 14"),
        "{short}"
    );
    let nothing = predict("");
    assert!(nothing.contains("new.csv: there are no rows of data"), "{nothing}");
    let unknown = predict(&sales().replace("north", "west"));
    assert!(unknown.contains("series \"west\" was not in the training data"), "{unknown}");
    let column = predict("unique_id,day,y\nnorth,1,1\n");
    assert!(column.contains("new.csv:1: there is no column \"ds\"; there are unique_id, day, y"), "{column}");
    let date = predict("unique_id,ds,y\nnorth,1,1\nnorth,31.12.24,1\n");
    assert!(date.contains("new.csv:3: \"31.12.24\" is not a time"), "{date}");
    let every_second_day: String =
        (0..40).map(|day| format!("north,{},1\n", 2 * day)).collect::<Vec<_>>().concat();
    let frequency = predict(&format!("unique_id,ds,y\n{every_second_day}"));
    assert!(frequency.contains("the data have frequency 2, but the model was trained on 1"), "{frequency}");
    place.write("new.csv", &sales().replace("north", "west"));
    place.run("predict run new.csv --new-series");
    let mut model = place.read("run/model.safetensors");
    let middle = model.len() - 9;
    model[middle] ^= 1;
    place.write("run/model.safetensors", &model);
    assert_says(&place.refused(1, "predict run sales.csv"), &["the file is corrupt"]);
}

#[test]
fn counts_are_trained_as_they_are_and_other_values_are_named() {
    let place = place();
    let counts = SALES
        .replace("'nlinear'", "'deepar'\nloss = 'negative-binomial'")
        .replace("[split]", "[scaling]\nmethod = 'none'\n\n[split]")
        .replace("epochs = 20", "epochs = 1");
    place.write("counts.toml", &counts);
    place.run("train counts.toml --out counts");
    place.write("scaled.toml", &counts.replace("method = 'none'", ""));
    let scaled = place.refused(2, "train scaled.toml --out x");
    assert!(scaled.contains("scaled.toml:6: the loss \"negative-binomial\" needs counts"), "{scaled}");
    place.write("sales.csv", &sales().replace(",5,155", ",5,155.5"));
    let fraction = place.refused(1, "train counts.toml --out x");
    assert!(fraction.contains("series \"north\": 155.5 at 5 is a fraction"), "{fraction}");
    assert!(!place.path("x").exists());
}

/// Days from Monday, 2024-01-01 on, without those of weekends if they are business days.
fn days(count: usize, business: bool) -> String {
    let all = (0..).filter(|day| !business || day % 7 < 5).take(count);
    let rows = all.map(|day| format!("2024-{:02}-{:02},{}\n", 1 + day / 28, 1 + day % 28, day % 7 + 1));
    format!("ds,y\n{}", rows.collect::<Vec<_>>().concat())
}

#[test]
fn new_data_have_the_frequency_of_the_model() {
    let place = place();
    place.write("sales.csv", &days(20, true));
    let short = SALES.replace("input = 14", "input = 2").replace("horizon = 7", "horizon = 3");
    place.write("week.toml", &short.replace("= 14", "= 4"));
    place.run("train week.toml --out run");
    for (count, first) in [(5, "y,2024-01-08,"), (2, "y,2024-01-03,"), (10, "y,2024-01-15,")] {
        place.write("new.csv", &days(count, true));
        place.run("predict run new.csv -o out.csv");
        let forecast = place.text("out.csv");
        assert!(forecast.lines().nth(1).unwrap().starts_with(first), "{forecast}");
    }
    place.write("new.csv", &days(14, false));
    let other = place.refused(1, "predict run new.csv");
    assert!(other.contains("the data have frequency D, but the model was trained on B"), "{other}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let place = trained();
    for (arguments, part) in [
        ("inspect run --svg x.svg", "--svg is for circuits and automata"),
        ("evaluate run --seed 3", "--seed is for automata"),
        ("train sales.toml --out x --hidden", "--hidden is for automata"),
        ("predict run sales.csv -o x --series north", "--plot <FILE>"),
        (
            "predict run sales.csv -o x --plot y.svg --series east",
            "sales.csv has no series \"east\"; its first is \"north\"",
        ),
    ] {
        assert_says(&place.refused(2, arguments), &[part]);
        assert!(!place.path("x").exists() && !place.path("y.svg").exists(), "{arguments:?}");
    }
    let small = ["-o", "x", "--plot", "y.svg", "--series", "south, small"];
    place.command("predict run sales.csv").args(small).assert().success();
    assert!(place.text("y.svg").contains("south, small"));
}

#[test]
fn evaluate_says_how_far_its_origins_are_apart() {
    let place = trained();
    let every = place.stdout("evaluate run");
    assert!(every.starts_with("Test subset:\n16 origins"), "{every}");
    for runs in ["run", "run run"] {
        let seventh = place.stdout(&format!("evaluate --step 7 {runs}"));
        assert!(seventh.starts_with("Test subset, every 7 steps:\n4 origins"), "{seventh}");
    }
    // So many origins that evaluation uses every second one.
    let rows = (0..4100).map(|day| format!("{day},{}\n", day % 7)).collect::<Vec<_>>().concat();
    place.write("sales.csv", &format!("ds,y\n{rows}"));
    place.write("long.toml", &SALES.replace("test = 14", "test = 2100").replace("epochs = 20", "epochs = 1"));
    place.run("train long.toml --out long");
    for runs in ["long", "long long"] {
        let fewer = place.stdout(&format!("evaluate {runs}"));
        assert!(fewer.starts_with("Test subset, every 2 steps:\n1047 origins"), "{fewer}");
    }
}

#[test]
fn the_table_that_is_read_is_not_overwritten() {
    let place = trained();
    std::fs::hard_link(place.path("sales.csv"), place.path("hard.csv")).unwrap();
    std::fs::create_dir(place.path("sub")).unwrap();
    let mut names = vec!["sales.csv", "./sub/../sales.csv", "hard.csv"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(place.path("sales.csv"), place.path("soft.csv")).unwrap();
        names.push("soft.csv");
    }
    for name in names {
        let message = place.refused(2, &format!("predict run sales.csv -o {name}"));
        assert!(message.contains("would overwrite sales.csv"), "{message}");
        assert_eq!(place.read("sales.csv"), sales().into_bytes(), "{name}");
    }
    // Another file is replaced.
    place.write("other.csv", &sales());
    place.run("predict run sales.csv -o other.csv");
}

#[test]
fn what_is_wrong_with_an_experiment_is_named_and_leaves_nothing_behind() {
    let place = place();
    for (from, to, status, part) in [
        ("horizon = 7", "horizon = 0", 2, "x.toml:6: "),
        ("model = 'nlinear'", "model = 'oracle'", 2, "x.toml:5: unknown variant `oracle`"),
        ("data = 'sales.csv'", "data = 'none.csv'", 1, "none.csv"),
        ("input = 14", "input = 70", 1, "has 52 values for training, but a window needs 77"),
        ("validation = 14", "validation = 3", 1, "at least the 7 steps of the horizon"),
    ] {
        place.write("x.toml", &SALES.replace(from, to));
        let message = place.refused(status, "train x.toml --out x");
        assert!(message.contains(part), "{to}: {message}");
        assert!(!place.path("x").exists(), "{to}");
    }
}

#[test]
fn a_quantised_copy_is_smaller_and_used_like_the_original() {
    let place = trained();
    for precision in ["int8", "f16"] {
        let said = place.json(&format!("quantize run --precision {precision} --max-loss 20%"));
        let bytes = |name: &str| said[name].as_u64().unwrap();
        assert!(bytes("bytes") < bytes("bytes_before"), "{said}");
        assert!(said["loss"].as_f64().unwrap() < 0.2, "{said}");
        let copy = format!("run-{precision}");
        assert_eq!(place.read(&format!("{copy}/model.safetensors")).len() as u64, bytes("bytes"));
        place.run(&format!("predict {copy} sales.csv -o out.csv"));
        place.run(&format!("evaluate {copy}"));
        assert_says(&place.refused(2, &format!("quantize run --precision {precision}")), &[&copy]);
    }
    assert_says(&place.refused(2, "quantize sales.csv --precision f16"), &["is not the run folder"]);
    assert_says(&place.refused(2, "quantize run --precision f16 --max-loss=-1"), &["--max-loss"]);
}
