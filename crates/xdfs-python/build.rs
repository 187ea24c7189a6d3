//! Options for the linker: the interpreter that loads the library has the symbols of Python.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
