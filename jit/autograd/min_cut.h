// Maximum flow and minimum cut of a directed graph with capacities (Dinic's algorithm).
#pragma once
#include <cstdint>
#include <vector>

namespace lutra {

class MinCut {
 public:
  static constexpr double kInfinite = 1e30;
  int add_node();
  void add_edge(int from, int to, double capacity);
  // The flow. kInfinite or more: no cut of finite edges parts them.
  double run(int source, int sink);
  // After run: whether the sink can still be reached from the node. Edges from nodes that cannot to nodes that can are
  // the minimum cut that lies nearest to the sink.
  std::vector<bool> behind(int sink) const;

 private:
  struct Edge {
    int to;
    double left;
    size_t back;  // the edge the other way, in edges_[to]
  };
  bool find_levels(int source, int sink);
  double push(int sink, int source);

  std::vector<std::vector<Edge>> edges_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace lutra
