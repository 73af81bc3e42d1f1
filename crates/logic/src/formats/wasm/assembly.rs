//! A module under construction: one memory, functions and their types, globals of type `i32`.

use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, InstructionSink, MemorySection, MemoryType, Module, TypeSection, ValType,
};

/// Bytes per page of memory.
pub(super) const PAGE: u64 = 65_536;

/// A module under construction.
#[derive(Default)]
pub(super) struct Assembly {
    types: TypeSection,
    functions: FunctionSection,
    code: CodeSection,
    exports: ExportSection,
    globals: GlobalSection,
    data: DataSection,
}

impl Assembly {
    /// Adds a function and returns its index. `emit` writes its code, without the final `end`.
    pub fn function(
        &mut self,
        params: &[ValType],
        results: &[ValType],
        locals: &[(u32, ValType)],
        emit: impl FnOnce(&mut InstructionSink<'_>),
    ) -> u32 {
        let mut code = Vec::new();
        emit(&mut InstructionSink::new(&mut code));
        self.function_of(params, results, locals, code)
    }

    /// Adds a function with the given code, without the final `end`, and returns its index.
    pub fn function_of(
        &mut self,
        params: &[ValType],
        results: &[ValType],
        locals: &[(u32, ValType)],
        code: Vec<u8>,
    ) -> u32 {
        let index = self.functions.len();
        self.types.ty().function(params.iter().copied(), results.iter().copied());
        self.functions.function(index);
        let mut function = Function::new(locals.iter().copied());
        function.raw(code).instructions().end();
        self.code.function(&function);
        index
    }

    /// Adds an exported function.
    pub fn export(
        &mut self,
        name: &str,
        params: &[ValType],
        results: &[ValType],
        locals: &[(u32, ValType)],
        emit: impl FnOnce(&mut InstructionSink<'_>),
    ) {
        let index = self.function(params, results, locals, emit);
        self.exports.export(name, ExportKind::Func, index);
    }

    /// Adds a global variable and returns its index.
    pub fn global(&mut self, value: i32) -> u32 {
        let ty = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
        self.globals.global(ty, &ConstExpr::i32_const(value));
        self.globals.len() - 1
    }

    /// Adds initial content of the memory.
    pub fn data(&mut self, address: u64, bytes: Vec<u8>) {
        self.data.active(0, &ConstExpr::i32_const(address as u32 as i32), bytes);
    }

    /// Returns the module, with a memory of at least `bytes` bytes.
    pub fn finish(mut self, bytes: u64) -> Vec<u8> {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: bytes.div_ceil(PAGE),
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        self.exports.export("memory", ExportKind::Memory, 0);
        let mut module = Module::new();
        module.section(&self.types).section(&self.functions).section(&memories).section(&self.globals);
        module.section(&self.exports).section(&self.code).section(&self.data);
        module.finish()
    }
}

/// Emits code that grows the memory and fills it with zeros from `base` on; the function returns 0 if the memory cannot
/// grow. The local `bytes` (`i64`) is the end of the memory that is needed.
pub(super) fn allocate(code: &mut InstructionSink<'_>, bytes: u32, base: u64) {
    use wasm_encoder::BlockType;
    code.local_get(bytes).i64_const(1 << 32).i64_ge_u();
    code.if_(BlockType::Empty).i32_const(0).return_().end();
    // Grow by the number of missing pages.
    let pages = PAGE as i64;
    code.local_get(bytes).i64_const(pages - 1).i64_add().i64_const(pages).i64_div_u().i32_wrap_i64();
    code.memory_size(0).i32_gt_u().if_(BlockType::Empty);
    code.local_get(bytes).i64_const(pages - 1).i64_add().i64_const(pages).i64_div_u().i32_wrap_i64();
    code.memory_size(0).i32_sub().memory_grow(0).i32_const(-1).i32_eq();
    code.if_(BlockType::Empty).i32_const(0).return_().end().end();
    code.i32_const(base as u32 as i32).i32_const(0);
    code.local_get(bytes).i64_const(base as i64).i64_sub().i32_wrap_i64().memory_fill(0);
}
