# Not built by our tests, which only parse it: a start for people who want holdfast in Homebrew on Linux. The library
# needs Linux's epoll and futex, so there is no bottle for macOS.
class Holdfast < Formula
  desc "Distributed locks over Redis, Valkey or ZooKeeper, for the shell and for C"
  homepage "https://holdfast.invalid/" # the address of the public repository
  url "https://holdfast.invalid/holdfast-1.0.0-rc.1-source.tar.gz" # that of a release folder
  sha256 "0000000000000000000000000000000000000000000000000000000000000000" # its SHA256SUMS has it
  license "Apache-2.0"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "python@3.13" => :build
  depends_on "redis" => :test
  depends_on "jansson"
  depends_on "libmicrohttpd"
  depends_on :linux
  depends_on "openssl@3"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DHF_TESTS=OFF", "-DHF_SERVE=ON", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    ENV["HOLDFAST_URL"] = "local:#{testpath}/server"
    assert_equal "held", shell_output("#{bin}/holdfast run nightly -- echo held").chomp
  end
end
