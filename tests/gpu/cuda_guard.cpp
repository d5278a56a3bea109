// Lets a build of torch without CUDA differentiate tensors that say they are on cuda:0 (see pretend_cuda.py).
// Autograd asks a device guard for streams and events; its worker threads ask the hooks whether there is a device.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr auto kKind = c10::DeviceType::CUDA;

struct OneDevice final : c10::impl::NoOpDeviceGuardImpl<kKind> {
  c10::Device getDevice() const override { return {kKind, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  // one stream, on which everything that was asked for is done already
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};

struct OneDeviceHooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

}  // namespace

// 0 if torch has a guard or hooks of its own
extern "C" int register_cuda_guard() {
  auto& guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(kKind)];
  if (guard.load() != nullptr || at::CUDAHooksRegistry()->Has("CUDAHooks")) return 0;
  guard.store(new OneDevice);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) { return std::unique_ptr<at::CUDAHooksInterface>(new OneDeviceHooks); });
  return 1;
}
